package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestSweepJob: the indexed Job parses, its command is one that this program takes, and its shards are as many
// as its completions.
func TestSweepJob(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes-sweep.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Spec       struct {
			CompletionMode       string `yaml:"completionMode"`
			Completions          int
			Parallelism          int
			BackoffLimitPerIndex int `yaml:"backoffLimitPerIndex"`
			Template             struct {
				Spec struct {
					RestartPolicy string `yaml:"restartPolicy"`
					Containers    []struct {
						Image        string
						Args         []string
						VolumeMounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
					}
					Volumes []struct{ Name string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &job); err != nil {
		t.Fatal(err)
	}
	s := &job.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || s.CompletionMode != "Indexed" || s.Template.Spec.RestartPolicy != "Never" || len(s.Template.Spec.Containers) != 1 {
		t.Fatalf("it is not an indexed Job of one container: %+v", job)
	}
	args := s.Template.Spec.Containers[0].Args
	for index := range s.Completions {
		a := &app{}
		c, rest, err := a.root().Find(strings.Split(strings.ReplaceAll(strings.Join(args, " "), "$(JOB_COMPLETION_INDEX)", fmt.Sprint(index)), " "))
		if err != nil || c.Name() != "sim" {
			t.Fatalf("index %d: error %v", index, err)
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Fatalf("index %d: %v", index, err)
		}
		shard, err := c.Flags().GetString("shard")
		if want := fmt.Sprintf("%d/%d", index, s.Completions); err != nil || shard != want {
			t.Fatalf("shard %q, want %q (error %v)", shard, want, err)
		}
		f := rowsFlags{shard: shard}
		if i, n, err := f.parts(); err != nil || i != index || n != s.Completions {
			t.Fatalf("shard %d of %d, error %v", i, n, err)
		}
	}
	if s.Template.Spec.Containers[0].VolumeMounts[0].Name != s.Template.Spec.Volumes[0].Name || !strings.Contains(strings.Join(args, " "), "/sweep/rows") {
		t.Error("the rows are not on the shared volume")
	}
}
