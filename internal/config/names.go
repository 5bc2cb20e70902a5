package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const allowedInNames = "letters (a to z), digits, -, _ and ."

// nameRune reports whether c may stand in the name of a server, which becomes
// a segment of a URL path.
func nameRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// validName refuses "." and ".." too, which mean something else in a path.
func validName(s string) bool {
	return strings.Trim(s, ".") != "" && !strings.ContainsFunc(s, func(c rune) bool { return !nameRune(c) })
}

// slug makes a valid name of any text, one that taken does not hold.
func slug(s string, taken map[string]bool) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case nameRune(c):
			b.WriteRune(c)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-")
	if !validName(name) {
		name = "server"
	}
	for base, i := name, 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	return name
}

// ownPaths lists the first segments of paths that are the gateway's, whatever
// its configuration. Some of them are for later.
func ownPaths() []string {
	return []string{".well-known", "dashboard", "debug", "healthz", "message", "metrics", "readyz"}
}

func reservedFirst(segment string) bool { return slices.Contains(ownPaths(), segment) }

// Check reports what of f does not go together: paths that cannot be used or
// are equal and, with several servers, names that are also the gateway's own
// paths. Load and Parse have called it; it is for a caller that has changed
// Path, SSEPath or Servers since. The errors are of the kind that Parse returns.
func (f *File) Check() error {
	mcp, sse := f.paths()
	var errs []error
	for _, p := range []struct{ key, value string }{{"path", mcp}, {"sse_path", sse}} {
		if expected := checkPath(p.value); expected != "" {
			errs = append(errs, &Error{Text: fmt.Sprintf("%s: expected %s, found %s", p.key, expected, quote(p.value))})
		}
	}
	if mcp == sse {
		errs = append(errs, &Error{Text: fmt.Sprintf("path and sse_path are both %s: they must differ", quote(mcp))})
	}
	if len(f.Servers) > 1 {
		taken := append(ownPaths(), "mcp", "sse", path.Base(mcp), path.Base(sse))
		slices.Sort(taken)
		taken = slices.Compact(taken)
		for _, s := range f.Servers {
			if slices.Contains(taken, s.Name) {
				errs = append(errs, &Error{s.Pos, fmt.Sprintf("%s: with several servers this name is taken by a path of the gateway: choose another one than %s",
					quote(s.Name), strings.Join(taken, ", "))})
			}
		}
	}
	return errors.Join(errs...)
}

func (f *File) paths() (mcp, sse string) {
	mcp, sse = f.Path, f.SSEPath
	if mcp == "" {
		mcp = "/mcp"
	}
	if sse == "" {
		sse = "/sse"
	}
	return mcp, sse
}

// nearest returns the candidate that key was probably meant to be, or "".
func nearest(key string, candidates []string) string {
	const longest = 40
	if utf8.RuneCountInString(key) > longest {
		return ""
	}
	best, least := "", 0
	for _, c := range candidates {
		d := distance(plain(key), plain(c))
		if strings.HasPrefix(plain(key), plain(c)) {
			d = min(d, 1) // environment for env
		}
		if best == "" || d < least {
			best, least = c, d
		}
	}
	if least > 2 || 2*least >= len(best) {
		return ""
	}
	return best
}

// plain takes away what differs between the spellings of a key in files,
// flags and other programs: max_body, max-body, maxBody.
func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}

// distance is the number of letters to insert, drop, replace or swap with
// their neighbour to get from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		next := make([]int, len(y)+1)
		next[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, row[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(y)]
}
