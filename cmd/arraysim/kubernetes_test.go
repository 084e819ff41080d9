package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/admin"
)

// object is a document of the manifest, as far as the test looks into it.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Ports []struct {
			Name       string
			TargetPort string `yaml:"targetPort"`
		}
		Replicas int
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				SecurityContext struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
					RunAsGroup   int  `yaml:"runAsGroup"`
					FSGroup      int  `yaml:"fsGroup"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []struct {
					Name   string
					Secret struct {
						SecretName  string      `yaml:"secretName"`
						DefaultMode os.FileMode `yaml:"defaultMode"`
					}
				}
			}
		}
		ISCSI struct {
			IQN string
			LUN int
		} `yaml:"iscsi"`
	}
}

type container struct {
	Args  []string
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Startup      probe `yaml:"startupProbe"`
	Readiness    probe `yaml:"readinessProbe"`
	Liveness     probe `yaml:"livenessProbe"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Exec    struct{ Command []string }
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// arguments checks that a command line is one of this program's, with flags that exist.
func arguments(args []string) error {
	cmd, rest, err := (&app{}).root().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// The manifest of docs is valid YAML, its configuration one that the daemon takes, its commands ones that
// exist, and its ports those of the configuration.
func TestKubernetesManifest(t *testing.T) {
	b, err := os.ReadFile("../../docs/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[o.Kind] = o
	}
	for _, k := range []string{"Secret", "ConfigMap", "Service", "StatefulSet", "PersistentVolume"} {
		if kinds[k].Metadata.Name == "" {
			t.Fatalf("there is no %s: %v", k, kinds)
		}
	}
	cfg, err := admin.ParseConfig("array.yaml", []byte(kinds["ConfigMap"].Data["array.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	set := kinds["StatefulSet"].Spec
	c := set.Template.Spec.Containers[0]
	for _, args := range [][]string{c.Args, c.Startup.Exec.Command[1:], c.Liveness.Exec.Command[1:]} {
		if err := arguments(args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	if c.Startup.Exec.Command[0] != "/usr/bin/arraysim" || c.Args[0] != "serve" {
		t.Errorf("it runs %q and asks by %q", c.Args, c.Startup.Exec.Command)
	}
	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, listen := range map[string]string{"iscsi": cfg.Portal.Listen, "metrics": cfg.Metrics.Listen} {
		if host, port, err := net.SplitHostPort(listen); err != nil || host != "0.0.0.0" || port != fmt.Sprint(ports[name]) {
			t.Errorf("port %s is %d, the configuration listens on %s", name, ports[name], listen)
		}
	}
	for _, p := range kinds["Service"].Spec.Ports {
		if ports[p.TargetPort] == 0 {
			t.Errorf("the service leads to port %q, which the container does not have", p.TargetPort)
		}
	}
	if ports[c.Readiness.HTTPGet.Port] != ports["metrics"] || c.Readiness.HTTPGet.Path != "/metrics" || set.Template.Metadata.Annotations["prometheus.io/port"] != fmt.Sprint(ports["metrics"]) {
		t.Errorf("metrics are looked for at %+v and %v", c.Readiness, set.Template.Metadata.Annotations)
	}
	// The secret is where the configuration looks for it, and the pod's group may read it.
	s := set.Template.Spec
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	if cfg.Portal.CHAP == nil || !strings.HasPrefix(cfg.Portal.CHAP.SecretFile, mounts["chap"]+"/") {
		t.Errorf("the secret is mounted at %s, the configuration has %+v", mounts["chap"], cfg.Portal.CHAP)
	}
	for _, v := range s.Volumes {
		if v.Name == "chap" && (v.Secret.DefaultMode != 0o440 || v.Secret.SecretName != kinds["Secret"].Metadata.Name) {
			t.Errorf("the secret is %+v", v)
		}
	}
	if sc := s.SecurityContext; !sc.RunAsNonRoot || sc.RunAsGroup == 0 || sc.RunAsGroup != sc.FSGroup || set.Replicas != 1 {
		t.Errorf("it runs as %+v, %d times", sc, set.Replicas)
	}
	luns := map[int]bool{}
	for _, v := range cfg.Volumes {
		luns[v.Export.LUN] = true
	}
	if pv := kinds["PersistentVolume"].Spec.ISCSI; pv.IQN != cfg.Portal.Target || !luns[pv.LUN] {
		t.Errorf("the volume is LUN %d of %s", pv.LUN, pv.IQN)
	}
	// The check of commands can fail.
	for _, bad := range [][]string{{"serve", "--no-such-flag"}, {"serv"}, {"status", "x"}} {
		if arguments(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
