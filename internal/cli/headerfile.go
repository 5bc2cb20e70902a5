package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/config"
)

// headerFile is a file with headers, one "Name: value" a line, that may be
// replaced at any time: a token that somebody renews. Safe for concurrent use.
type headerFile struct {
	path string
	log  *slog.Logger // set before its first use by others; nil: nobody is told

	mu    sync.Mutex // guards the fields below
	known http.Header
	size  int64
	at    time.Time // the file's, as known was read
	wrong string    // what was wrong when it was looked at last
}

// maxHeaderFile bounds what is read of it.
const maxHeaderFile = 64 << 10

// header returns what the file has now. A file that is being replaced, or is
// not as it should be, leaves things as they were.
func (f *headerFile) header() http.Header {
	err := f.load()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now != f.wrong && now != "" && f.log != nil {
		f.log.Warn("the header file cannot be used; what it had before is sent", "file", f.path, "why", err)
	}
	f.wrong = now
	return f.known
}

// load reads the file if it is another one than was read.
func (f *headerFile) load() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	same := f.known != nil && info.Size() == f.size && info.ModTime().Equal(f.at)
	f.mu.Unlock()
	if same {
		return nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxHeaderFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxHeaderFile {
		return errors.New("it is over 64 KiB")
	}
	h, err := parseHeaders(data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.known, f.size, f.at = h, info.Size(), info.ModTime()
	f.mu.Unlock()
	return nil
}

// parseHeaders reads headers, one a line. Empty lines and those that begin with
// # are skipped.
func parseHeaders(data []byte) (http.Header, error) {
	h := http.Header{}
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	lines.Buffer(nil, maxHeaderFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, err := config.ParseHeader(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s", n, strings.TrimPrefix(err.Error(), config.ErrInvalid.Error()+": "))
		}
		h.Add(name, value)
	}
	return h, lines.Err()
}
