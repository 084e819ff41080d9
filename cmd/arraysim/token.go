package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) token() *cobra.Command {
	var link bool
	c := &cobra.Command{
		Use: "token", Short: "Print the token that the page and scripts need to change the array",
		Long: `token prints the content of admin.token in the data folder. Whoever has it can change and destroy
what the array holds. To replace it, delete the file and restart the daemon. Do not write it into a
command line, which every user of the machine can list: curl's -H @- reads it from the input.`,
		Example: "  arraysim token\n  arraysim token --link    # open it in a browser\n" +
			"  arraysim token | sed 's/^/Authorization: Bearer /' | curl -X POST -H @- http://127.0.0.1:9400/api/v1/check",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			t, err := admin.ReadToken(a.folder())
			if err != nil {
				return err
			}
			if link {
				s, err := a.client().Status(cmd.Context())
				if err != nil {
					return err
				}
				if s.Page == "" {
					return fmt.Errorf("the daemon of %s serves no page; start it with --metrics 127.0.0.1:9400", a.folder())
				}
				t = s.Page + "#token=" + t
			}
			fmt.Fprintln(cmd.OutOrStdout(), t)
			return nil
		}),
	}
	c.Flags().BoolVar(&link, "link", false, "print the page's address with the token in it")
	return c
}
