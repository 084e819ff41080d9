package iscsi

import (
	"strings"

	"github.com/arraysim/arraysim/internal/scsi"
)

// CheckName says what is wrong with an iSCSI name, by RFC 7143 4.2.7 and RFC 3722. Letters may be of either
// case. The text of the error shows no character of the name that a terminal would obey.
func CheckName(name string) error { return scsi.CheckISCSIName(name) }

// FoldName returns the form in which iSCSI names are compared (RFC 7143 4.2.7.1).
func FoldName(name string) string { return strings.ToLower(name) }
