package stdio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrStart is wrapped by every error of StartProcess.
var ErrStart = errors.New("cannot start the server")

// build makes the command with its directory and environment, not its streams.
func (c Command) build() (*exec.Cmd, error) {
	if c.Path == "" {
		return nil, fmt.Errorf("%w: no command is given", ErrStart)
	}
	for _, kv := range c.Env {
		if strings.Index(kv, "=") < 1 {
			return nil, fmt.Errorf("%w: environment entry %q is not KEY=VALUE", ErrStart, kv)
		}
	}
	if c.Dir != "" {
		// Asked here because the system reports a missing directory in the
		// same words as a missing program.
		if info, err := os.Stat(c.Dir); err != nil {
			return nil, fmt.Errorf("%w: working directory: %w", ErrStart, err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("%w: working directory %s: %w", ErrStart, c.Dir, syscall.ENOTDIR)
		}
	}
	path := c.Path
	if dirs, ok := lookupEnv(c.Env, "PATH"); ok && filepath.Base(path) == path {
		// Whoever gives a server a PATH means the server itself too.
		path = lookIn(dirs, path)
	}
	cmd := exec.Command(path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(childEnv(cmd.Environ()), c.Env...)
	return cmd, nil
}

func (c Command) name() string {
	if c.Name != "" {
		return c.Name
	}
	return filepath.Base(c.Path)
}

// childEnv leaves out what is addressed to this process: a server that obeys
// MCP_TRANSPORT would stop speaking stdio.
func childEnv(inherited []string) []string {
	kept := make([]string, 0, len(inherited))
	for _, kv := range inherited {
		key, _, _ := strings.Cut(kv, "=")
		key = envKey(key)
		if key != "MCP_TRANSPORT" && !strings.HasPrefix(key, "HOLDFAST_") {
			kept = append(kept, kv)
		}
	}
	return kept
}

// lookupEnv finds the value that counts for a key: the last.
func lookupEnv(env []string, key string) (value string, ok bool) {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); envKey(k) == key {
			value, ok = v, true
		}
	}
	return value, ok
}

// lookIn finds a program in a list of directories, and returns the name as it
// is if it is in none. A directory that is not absolute is left out: what runs
// is not to depend on where we are.
func lookIn(dirs, name string) string {
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

// startError says what to check.
func (c Command) startError(cmd *exec.Cmd, err error) error {
	return fmt.Errorf("%w: %s (%w)", ErrStart, c.explain(cmd, err), err)
}

func (c Command) explain(cmd *exec.Cmd, err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Sprintf("command %q not found: check that it is installed, and in the PATH of this process", c.Path)
	case errors.Is(err, exec.ErrDot):
		return fmt.Sprintf("command %q is in the current directory only: give its path", c.Path)
	case errors.Is(err, os.ErrNotExist):
		path := cmd.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(cmd.Dir, path)
		}
		if _, err := os.Stat(path); err == nil {
			return fmt.Sprintf("command %q is there but what runs it is not: check the interpreter in its first line, "+
				"or the loader it was linked for", c.Path)
		}
		return fmt.Sprintf("command %q not found: check the path (here %s)", c.Path, path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("command %q may not be run: check that it is a file and that its mode allows execution", c.Path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf("command %q is not a program for this machine: check its architecture, "+
			"or its first line if it is a script", c.Path)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many open files: raise the limit (ulimit -n)"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return "the system has no room for another process: check the limits on processes (ulimit -u, pids of the container) and memory"
	default:
		return fmt.Sprintf("command %q", c.Path)
	}
}
