package stdio

import (
	"bytes"
	"os"
	"strconv"
)

// onlyZombies reports whether every process of a group is a zombie: in a
// container whose first process does not reap orphans they stay for ever. If
// /proc cannot be read nothing is known and the answer is no.
func onlyZombies(pgid int) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	seen := false
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		state, group := parseStat(stat)
		if group != pgid {
			continue
		}
		if state != 'Z' && state != 'X' {
			return false
		}
		seen = true
	}
	return seen
}

// parseStat finds state and process group in /proc/PID/stat, proc_pid_stat(5).
// They follow the name in parentheses, which may hold anything, parentheses
// too.
func parseStat(stat []byte) (state byte, pgid int) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 || len(fields[0]) != 1 {
		return 0, 0
	}
	pgid, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return 0, 0
	}
	return fields[0][0], pgid
}
