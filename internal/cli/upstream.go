package cli

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/config"
)

// upstream is a remote server, as flags describe it.
type upstream struct {
	url, headerFile, ca string
	headers             []string
	insecureHTTP        bool
	file                *headerFile // of headerFile, once it is read
}

// logTo says where it tells of a header file that cannot be used.
func (u *upstream) logTo(log *slog.Logger) {
	if u.file != nil {
		u.file.log = log
	}
}

func (f *flags) remote(s *pflag.FlagSet) {
	s.StringVar(&f.upstream.url, "upstream", "", "`URL` of a server to serve instead of a command, of any protocol version")
	f.upstream.register(s, "upstream-")
	s.DurationVar(&f.timers.ReconnectWait, "reconnect-wait", 30*time.Second, "a request waits so long for a server that cannot be reached, and a call for its stream")
}

// register adds the flags that tell how to reach it, their names with a prefix.
func (u *upstream) register(s *pflag.FlagSet, prefix string) {
	s.StringArrayVar(&u.headers, prefix+"header", nil, "`'Name: value'` of a header for every request to it, with ${VAR} from the environment; repeatable")
	s.StringVar(&u.headerFile, prefix+"header-file", "", "`file` with more of them, one a line; read again when it changes")
	s.StringVar(&u.ca, prefix+"ca", "", "PEM `file` with certificates to trust beside the system's")
	s.BoolVar(&u.insecureHTTP, "insecure-http", false, "allow a plain http URL that is not of this machine")
}

// checkUnused refuses what belongs to a URL where none is given.
func (u *upstream) checkUnused() error {
	if u.url != "" {
		return nil
	}
	if len(u.headers) > 0 || u.headerFile != "" || u.ca != "" {
		return usage("--upstream-header, --upstream-header-file and --upstream-ca belong to an --upstream URL; in a --config file each server has its own")
	}
	return nil
}

// server describes it. prefix begins the names of its flags.
func (u *upstream) server(prefix string) (holdfast.Server, error) {
	s := holdfast.Upstream(u.url)
	s.CA, s.InsecureHTTP, s.Header = u.ca, u.insecureHTTP, http.Header{}
	for _, text := range u.headers {
		name, value, err := expandedHeader(text)
		if err != nil {
			return s, usage("%sheader: %s", prefix, strings.TrimPrefix(err.Error(), config.ErrInvalid.Error()+": "))
		}
		s.Header.Add(name, value)
	}
	if u.headerFile != "" {
		u.file = &headerFile{path: u.headerFile}
		if err := u.file.load(); err != nil {
			return s, usage("%sheader-file: %w", prefix, err)
		}
		s.HeaderFunc = u.file.header
	}
	return s, nil
}

func expandedHeader(text string) (name, value string, err error) {
	if text, err = config.Expand(text); err != nil {
		return "", "", err
	}
	return config.ParseHeader(text)
}

// remoteServer describes a remote server of a file.
func remoteServer(e config.Server, insecureHTTP bool) holdfast.Server {
	s := holdfast.Upstream(e.URL)
	s.CA, s.InsecureHTTP, s.Header = e.CA, e.InsecureHTTP || insecureHTTP, http.Header{}
	for _, text := range e.Headers {
		if name, value, err := config.ParseHeader(text); err == nil { // they were checked
			s.Header.Add(name, value)
		}
	}
	return s
}
