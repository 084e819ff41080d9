// Package schema has the JSON Schemas of scenario files, profiles and configuration files: docs/schema, generated from
// the Go types that read these files, for editors. It has tests alone, so that no program contains the generator:
//
//	go test ./internal/schema -update
//
// writes the schemas. Without -update the tests compare them with the types, and validate all files
// of the repository.
package schema
