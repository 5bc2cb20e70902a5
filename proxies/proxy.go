package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// path is what stands between client and gateway.
type path struct {
	name string
	// silence and age are the limits that are set; 0: the sixty seconds of deploy/, and none.
	silence, age time.Duration
	late         bool // it notices the age only when something is written
}

// host is the name that deploy/ serves.
const host = "mcp.example.com"

// prefix is where the path serves the gateway; the cutter reads no URLs.
func (p path) prefix() string {
	if p.name == "cutter" {
		return ""
	}
	return "/tools"
}

// proxy is a path that runs.
type proxy struct {
	addr string
	stop func()
}

// freePort returns a port that nothing listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// start runs the path on the port, before the gateway's address.
func (p path) start(deploy, dir, port, target string) (*proxy, error) {
	if p.name == "cutter" {
		return startCutter("127.0.0.1:"+port, target, p.age)
	}
	files := map[string]string{"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "caddy": "Caddyfile"}
	text, err := os.ReadFile(filepath.Join(deploy, files[p.name]))
	if err != nil {
		return nil, err
	}
	edits := []string{"127.0.0.1:8080", target, "127.0.0.1:8081", "127.0.0.1:" + port, host + ":8081", host + ":" + port}
	if p.silence > 0 {
		edits = append(edits, " 60s", " "+milliseconds(p.silence))
	}
	config := strings.NewReplacer(edits...).Replace(string(text))
	file := filepath.Join(dir, p.name+"-"+port)
	var command *exec.Cmd
	switch p.name {
	case "nginx":
		config = fmt.Sprintf(nginxMain, file, strings.TrimSuffix(config, "\n"))
		command = exec.Command("nginx", "-c", file, "-e", file+".log")
	case "haproxy":
		command = exec.Command("haproxy", "-f", file)
	case "caddy":
		options := ""
		if p.age > 0 {
			options = fmt.Sprintf("\tservers {\n\t\ttimeouts {\n\t\t\twrite %s\n\t\t}\n\t}\n", milliseconds(p.age))
		}
		config = "{\n\tadmin off\n" + options + "}\n" + config
		command = exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
		command.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	}
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	return launch(command, file, "127.0.0.1:"+port)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// nginxMain is what stands around the server of deploy/nginx.conf.
const nginxMain = `daemon off;
worker_processes 1;
pid %[1]s.pid;
error_log %[1]s.log;
events { worker_connections 1024; }
http {
access_log off;
client_body_temp_path %[1]s.body;
proxy_temp_path %[1]s.proxy;
fastcgi_temp_path %[1]s.fastcgi;
uwsgi_temp_path %[1]s.uwsgi;
scgi_temp_path %[1]s.scgi;
%[2]s
}
`

// launch starts a process and waits until it listens.
func launch(command *exec.Cmd, file, addr string) (*proxy, error) {
	out, err := os.Create(file + ".out")
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait(); out.Close() }() // waited for in stop
	stop := func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
	}
	for range 200 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return &proxy{addr, stop}, nil
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("%s ended; see %s.out", command.Path, file)
		case <-time.After(50 * time.Millisecond):
		}
	}
	stop()
	return nil, fmt.Errorf("%s does not listen; see %s.out", command.Path, file)
}

// startCutter runs what a load balancer with a limit on age is: it passes bytes,
// and closes each connection at that age. None of the three proxies can do that.
func startCutter(addr, target string, age time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() { // ends with the listener
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { cutAt(client, target, age, done) }) // ends at that age
		}
	})
	return &proxy{addr, func() { close(done); l.Close(); running.Wait() }}, nil
}

func cutAt(client net.Conn, target string, age time.Duration, done <-chan struct{}) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	over := make(chan struct{}, 2)
	// Both end when the connections are closed, which the return does.
	var pumps sync.WaitGroup
	defer pumps.Wait()
	defer server.Close()
	defer client.Close()
	pumps.Go(func() { _, _ = io.Copy(server, client); over <- struct{}{} })
	pumps.Go(func() { _, _ = io.Copy(client, server); over <- struct{}{} })
	limit := time.NewTimer(age)
	defer limit.Stop()
	select {
	case <-over:
	case <-limit.C:
	case <-done:
	}
}
