package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast"
)

// parse makes options of a command line as serve does.
func parse(t *testing.T, line ...string) holdfast.Options {
	t.Helper()
	var f flags
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.register(set)
	if err := set.Parse(line); err != nil {
		t.Fatal(err)
	}
	o, _, err := f.options(set, set.Args())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDefaults(t *testing.T) {
	o := parse(t, "--", "npx", "-y", "server")
	want := holdfast.Options{
		Servers: []holdfast.Server{{
			Command: "npx", Args: []string{"-y", "server"}, Isolation: holdfast.PerSession, MaxChildren: 64, Warm: 1,
			StartTimeout: time.Minute, StopTimeout: 5 * time.Second,
		}},
		Listen: "127.0.0.1:8080", Path: "/mcp", SSEPath: "/sse", MaxBody: 16 << 20, MaxSessions: 10_000,
		Timers: holdfast.Timers{
			Heartbeat: 15 * time.Second, AnswerGrace: 100 * time.Millisecond, SessionTimeout: 30 * time.Minute,
			ReconnectGrace: 2 * time.Minute, StartTimeout: time.Minute, StopTimeout: 5 * time.Second,
			QuestionTimeout: 10 * time.Minute, ProbeTimeout: 2 * time.Second, ReconnectWait: 30 * time.Second,
			WriteTimeout: 30 * time.Second, Drain: 10 * time.Second,
			PingInterval: 30 * time.Second, PingTimeout: 20 * time.Second, PingMisses: 2,
			RequestTimeout: 15 * time.Minute, RequestMax: time.Hour, OrphanGrace: 2 * time.Minute,
			TaskAfter: 10 * time.Second, ResultTTL: 10 * time.Minute, AdoptWindow: 2 * time.Minute,
		},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
}

// A zero that is asked for is not the library's zero, which means the default.
func TestZeroIsNone(t *testing.T) {
	o := parse(t, "--drain", "0", "--answer-grace", "0s", "--reconnect-grace", "0s", "--warm", "0", "--", "server")
	if o.Timers.Drain >= 0 || o.Timers.AnswerGrace >= 0 || o.Timers.ReconnectGrace >= 0 || o.Servers[0].Warm >= 0 {
		t.Errorf("got %+v, warm %d", o.Timers, o.Servers[0].Warm)
	}
	none := parse(t, "--ping-interval", "0", "--request-timeout", "0", "--request-max", "0", "--orphan-grace", "0", "--task-after", "0", "--adopt-window", "0", "--", "server").Timers
	if none.PingInterval >= 0 || none.RequestTimeout >= 0 || none.RequestMax >= 0 || none.OrphanGrace >= 0 || none.TaskAfter >= 0 || none.AdoptWindow >= 0 {
		t.Errorf("got %+v", none)
	}
}

// child is how a server's processes are run.
type child struct {
	isolation   holdfast.Isolation
	max, warm   int
	start, stop time.Duration
}

func TestFlagsWinOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	text := `
listen: 127.0.0.1:1
heartbeat: 1s
max_body: 1MiB
allow_host: [file.example]
warm: 2
max_children: 8
stop_timeout: 2s
servers:
  one: {command: one, isolation: shared, start_timeout: 1s}
  two: {command: two, warm: 0}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		line     []string
		listen   string
		beat     time.Duration
		body     int
		host     string
		one, two child
	}{
		{
			"file", nil, "127.0.0.1:1", time.Second, 1 << 20, "file.example",
			child{holdfast.Shared, 8, 2, time.Second, 2 * time.Second},
			child{holdfast.PerSession, 8, -1, time.Minute, 2 * time.Second},
		},
		{
			"flags", []string{
				"--listen", "127.0.0.1:2", "--heartbeat", "3s", "--max-body", "2MiB", "--allow-host", "flag.example",
				"--isolation", "session", "--warm", "1", "--max-children", "4", "--start-timeout", "5s", "--stop-timeout", "6s",
			}, "127.0.0.1:2", 3 * time.Second, 2 << 20, "flag.example",
			child{holdfast.PerSession, 4, 1, 5 * time.Second, 6 * time.Second},
			child{holdfast.PerSession, 4, 1, 5 * time.Second, 6 * time.Second},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, append([]string{"--config", file}, tt.line...)...)
			if o.Listen != tt.listen || o.Timers.Heartbeat != tt.beat || o.MaxBody != tt.body ||
				len(o.AllowHosts) != 1 || o.AllowHosts[0] != tt.host {
				t.Errorf("got %+v", o)
			}
			for i, want := range []child{tt.one, tt.two} {
				s := o.Servers[i]
				if got := (child{s.Isolation, s.MaxChildren, s.Warm, s.StartTimeout, s.StopTimeout}); got != want {
					t.Errorf("server %s: got %+v, want %+v", s.Name, got, want)
				}
			}
		})
	}
}

// A clock is a tool's, else its server's, else the gateway's; a flag sets it for
// all.
func TestClocksOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	text := `
ping_misses: 3
request_max: 2h
result_ttl: 20m
adopt_window: 0s
servers:
  reports:
    command: reports
    request_timeout: 30m
    orphan_grace: 0s
    ping_interval: 1m
    ping_timeout: 10s
    ping_misses: 5
    task_after: 30s
    tools:
      build_report: {on_disconnect: linger, request_timeout: 1h, request_max: 0s, orphan_grace: 5m, task: 1m}
      "charge_*": {adopt: key, task: required}
  plain: {command: plain}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := parse(t, "--config", file)
	if g := o.Timers; g.PingMisses != 3 || g.RequestMax != 2*time.Hour || g.ResultTTL != 20*time.Minute || g.AdoptWindow >= 0 ||
		g.RequestTimeout != 15*time.Minute || g.PingInterval != 30*time.Second {
		t.Errorf("the gateway's: %+v", g)
	}
	own := holdfast.Timers{
		RequestTimeout: 30 * time.Minute, OrphanGrace: -1, PingInterval: time.Minute, PingTimeout: 10 * time.Second, PingMisses: 5, TaskAfter: 30 * time.Second,
	}
	if got := o.Servers[0].Timers; got != own {
		t.Errorf("the server's: %+v, want %+v", got, own)
	}
	entries := []holdfast.Tool{
		{Name: "build_report", OnDisconnect: holdfast.DisconnectLinger, RequestTimeout: time.Hour, RequestMax: -1, OrphanGrace: 5 * time.Minute, TaskAfter: time.Minute},
		{Name: "charge_*", Adopt: holdfast.AdoptByKey, Task: holdfast.TaskRequired},
	}
	if got := o.Servers[0].Tools; !reflect.DeepEqual(got, entries) {
		t.Errorf("the tools': %+v, want %+v", got, entries)
	}
	if s := o.Servers[1]; s.Timers != (holdfast.Timers{}) || s.Tools != nil {
		t.Errorf("a server without its own: %+v", s)
	}

	o = parse(t, "--config", file, "--request-timeout", "3m", "--request-max", "4m", "--orphan-grace", "5s", "--ping-misses", "6",
		"--ping-interval", "7s", "--ping-timeout", "6s", "--result-ttl", "8m", "--adopt-window", "9s", "--task-after", "0")
	want := o.Timers
	want.RequestTimeout, want.RequestMax, want.OrphanGrace, want.PingMisses = 3*time.Minute, 4*time.Minute, 5*time.Second, 6
	want.PingInterval, want.PingTimeout, want.ResultTTL, want.AdoptWindow = 7*time.Second, 6*time.Second, 8*time.Minute, 9*time.Second
	want.TaskAfter = -1
	if o.Timers != want || o.Servers[0].Timers != (holdfast.Timers{}) {
		t.Errorf("with flags: %+v, the server's %+v", o.Timers, o.Servers[0].Timers)
	}
	entries[0] = holdfast.Tool{Name: "build_report", OnDisconnect: holdfast.DisconnectLinger}
	if got := o.Servers[0].Tools; !reflect.DeepEqual(got, entries) {
		t.Errorf("with flags, the tools': %+v, want %+v", got, entries)
	}
}

func TestDemoHasItsOwnLimit(t *testing.T) {
	if n := parse(t, "--demo").Servers[0].MaxChildren; n < 1000 {
		t.Errorf("at most %d: the demo starts no processes", n)
	}
	if n := parse(t, "--demo", "--max-children", "3").Servers[0].MaxChildren; n != 3 {
		t.Errorf("at most %d, want the 3 that were asked for", n)
	}
}

// Every flag is explained in the manual, beside its default.
func TestFlagsAreInTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var f flags
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.register(set)
	var c connect
	for _, g := range c.groups() {
		set.AddFlagSet(g.flags)
	}
	rows := strings.Split(string(text), "\n")
	set.VisitAll(func(flag *pflag.Flag) {
		for _, row := range rows {
			if strings.HasPrefix(row, "| `--"+flag.Name+"`") {
				if def := manualDefault(flag); def != "" && !strings.Contains(row, "| "+def+" |") {
					t.Errorf("--%s: its row does not have the default %s:\n%s", flag.Name, def, row)
				}
				return
			}
		}
		t.Errorf("--%s has no row in docs/operations.md", flag.Name)
	})
}

// manualDefault is a flag's default as the manual has it.
func manualDefault(flag *pflag.Flag) string {
	switch flag.DefValue {
	case "", "[]", "false":
		return ""
	}
	def := flag.DefValue // 1h0m0s, 10000
	if d, err := time.ParseDuration(def); err == nil && def != "0" {
		def = d.String()
		if strings.HasSuffix(def, "m0s") {
			def = strings.TrimSuffix(def, "0s")
		}
		if strings.HasSuffix(def, "h0m") {
			def = strings.TrimSuffix(def, "0m")
		}
	}
	return "`" + def + "`"
}
