package stdio

// onlyZombies reports whether every process of a group is a zombie: in a
// container whose first process does not reap orphans they stay for ever. If
// /proc cannot be read nothing is known and the answer is no.
func onlyZombies(pgid int) bool {
	procs, err := processTable()
	if err != nil {
		return false
	}
	seen := false
	for _, p := range procs {
		if p.group != pgid {
			continue
		}
		if !p.ended() {
			return false
		}
		seen = true
	}
	return seen
}
