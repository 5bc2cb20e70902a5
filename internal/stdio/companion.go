package stdio

// A parent-death signal reaches neither grandchildren nor survives the end of
// the thread that forked. So one more process of our own binary holds the read
// end of a pipe: when we end, in whatever way, it sees the end of the pipe and
// ends the process groups it was told of. It reads lines, "+PGID" to watch a
// group and "-PGID" to forget it.

import (
	"strconv"
)

// formatCompanionLine makes the line that adds or removes a group.
func formatCompanionLine(add bool, pgid int) string {
	sign := "-"
	if add {
		sign = "+"
	}
	return sign + strconv.Itoa(pgid) + "\n"
}

// parseCompanionLine reads such a line without its newline. It accepts no
// group that kill(2) takes for something else: 0 is the caller's own, 1 is
// every process there is.
func parseCompanionLine(line string) (add bool, pgid int, ok bool) {
	if len(line) < 2 || line[0] != '+' && line[0] != '-' || line[1] < '0' || line[1] > '9' {
		return false, 0, false
	}
	pgid, err := strconv.Atoi(line[1:])
	if err != nil || pgid < 2 || pgid > 1<<31-1 {
		return false, 0, false
	}
	return line[0] == '+', pgid, true
}
