package config

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxCount    = 1_000_000
	minBody     = 1 << 10
	maxBody     = 1 << 40
	minDuration = time.Millisecond
)

// duration reads a Go duration. Where zero means something it becomes None.
func (r *reader) duration(into *time.Duration, zeroAllowed bool) func(*node) {
	return func(n *node) {
		const expected = "expected a duration such as 500ms, 15s or 30m"
		if _, err := strconv.ParseFloat(n.text, 64); err == nil {
			r.failAt(n, "%s, found %s without a unit: add one", expected, shorten(n.text))
			return
		}
		d, err := time.ParseDuration(n.text)
		switch {
		case err != nil || n.kind != kindString:
			r.failAt(n, "%s, found %s", expected, n.found())
		case d < 0:
			r.failAt(n, "%s, found the negative %s", expected, shorten(n.text))
		case d == 0 && zeroAllowed:
			*into = None
		case d < minDuration:
			r.failAt(n, "expected at least %s, found %s", minDuration, shorten(n.text))
		default:
			*into = d
		}
	}
}

// count reads a whole number of at least least; 0 becomes None.
func (r *reader) count(into *int, least int) func(*node) {
	return func(n *node) {
		v, err := strconv.Atoi(n.text)
		if err != nil || n.kind != kindNumber || v < least || v > maxCount || strconv.Itoa(v) != n.text {
			r.failAt(n, "expected a whole number from %d to %d, found %s", least, maxCount, n.found())
			return
		}
		if v == 0 {
			v = None
		}
		*into = v
	}
}

// size reads a number of bytes.
func (r *reader) size(into *int64) func(*node) {
	return func(n *node) {
		v, err := ParseSize(n.text)
		if err != nil {
			r.failAt(n, "expected bytes or a size such as 16MiB, at least 1KiB, found %s", n.found())
			return
		}
		*into = v
	}
}

// ParseSize reads a size for MaxBody: a whole number of bytes, or one with a
// unit out of B, KiB, MiB, GiB (powers of 1024), kB, KB, MB and GB (powers of
// 1000). Less than 1 KiB or more than 1 TiB is an error.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "kKMGiB")
	unit := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
		"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	}[s[len(digits):]]
	n, err := strconv.ParseUint(strings.TrimRight(digits, " "), 10, 63)
	if err != nil || unit == 0 || n > uint64(maxBody/unit) || int64(n)*unit < minBody {
		return 0, fmt.Errorf("%w: expected a size such as 16MiB, from 1KiB to 1024GiB, found %s", ErrInvalid, quote(s))
	}
	return int64(n) * unit, nil
}

// choice reads one of a few words.
func (r *reader) choice(into *string, words ...string) func(*node) {
	return func(n *node) {
		if n.kind == kindString && slices.Contains(words, n.text) {
			*into = n.text
			return
		}
		hint := ""
		if near := nearest(n.text, words); near != "" {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		last := len(words) - 1
		r.failAt(n, "expected %s or %s, found %s%s", strings.Join(words[:last], ", "), words[last], n.found(), hint)
	}
}

func checkListen(s string) string {
	_, port, err := net.SplitHostPort(s)
	_, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || strings.ContainsAny(s, " /\t\n") {
		if _, bad := strconv.ParseUint(s, 10, 16); bad == nil {
			return fmt.Sprintf("an address such as 127.0.0.1:%s", s)
		}
		return "an address such as 127.0.0.1:8080"
	}
	return ""
}

// checkPath allows what is safe in a URL and in a pattern of http.ServeMux.
func checkPath(s string) string {
	ok := len(s) > 1 && s[0] == '/' && path.Clean(s) == s &&
		!strings.ContainsFunc(s, func(c rune) bool { return c != '/' && c != '~' && !nameRune(c) })
	if !ok {
		return "a path such as /mcp, of letters, digits and -._~, without a slash at its end"
	}
	if first, _, _ := strings.Cut(s[1:], "/"); reservedFirst(first) || path.Base(s) == "message" {
		return fmt.Sprintf("a path that the gateway does not use itself (%s)", strings.Join(ownPaths(), ", "))
	}
	return ""
}

func checkPublicURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "an absolute URL such as https://example.org/tools, without query, fragment or user"
	}
	return ""
}

func checkHost(s string) string {
	if s == "" || strings.ContainsAny(s, "/@?#*\\ \t\n") || strings.Contains(s, "://") || len(s) > 255 {
		return "a host name such as gateway.example.org, without scheme, path or wildcard"
	}
	return ""
}

func checkOrigin(s string) string {
	if s == "*" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || s != u.Scheme+"://"+u.Host {
		return `an origin such as https://app.example.org, without a slash at its end, or "*"`
	}
	return ""
}
