package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// answers are the dual-era server's own, with no gateway before it: they show
// what no gateway can mend.
type answers struct {
	refusals map[string]string // the texts of its tools' results at 2026-07-28, by scenario
	second   json.RawMessage   // its result at 2025-11-25 for the tool with two rounds
}

const (
	fixtureLimit = 20 * time.Second
	refusal      = "cannot be sent while serving a request on protocol version 2026-07-28"
)

// toolOf says which call each excused scenario makes.
var toolOf = map[string]string{
	"tools-call-sampling":          `{"name":"test_sampling","arguments":{"prompt":"x"},%s}`,
	"tools-call-elicitation":       `{"name":"test_elicitation","arguments":{"message":"x"},%s}`,
	"elicitation-sep1034-defaults": `{"name":"test_elicitation_sep1034_defaults","arguments":{},%s}`,
	"elicitation-sep1330-enums":    `{"name":"test_elicitation_sep1330_enums","arguments":{},%s}`,
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
	`{"name":"conformance","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{}}}`

// message is as much of a JSON-RPC message as is looked at here.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
}

// conversation is one with a server on stdio.
type conversation struct {
	in    io.Writer
	lines *bufio.Scanner
}

// askFixture puts to the fixture, behind each filter, what the suite would.
func askFixture(home string) (answers, error) {
	a := answers{refusals: map[string]string{}}
	server := filepath.Join(home, "bin/everything-server")
	err := converse(filepath.Join(home, "modernonly.mjs"), server, func(c conversation) error {
		for scenario, params := range toolOf {
			result, err := c.call("tools/call", fmt.Sprintf(params, meta))
			if err != nil {
				return err
			}
			a.refusals[scenario] = texts(result)
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	err = converse(filepath.Join(home, "legacyonly.mjs"), server, func(c conversation) error {
		_, err := c.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"conformance","version":"1"}}`)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		a.second, err = c.call("tools/call", `{"name":"test_input_required_result_multi_round","arguments":{}}`)
		return err
	})
	return a, err
}

// converse starts a server behind a filter and ends both.
func converse(filter, server string, talk func(conversation) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), fixtureLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filter, server)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = talk(conversation{in, bufio.NewScanner(out)})
	_ = in.Close() // the server's end
	_ = cmd.Wait() // how it ends is not at issue
	if err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(filter), filepath.Base(server), err)
	}
	return nil
}

// call sends a request and returns its result; meanwhile it accepts every
// question of the server's.
func (c conversation) call(method, params string) (json.RawMessage, error) {
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params); err != nil {
		return nil, err
	}
	for c.lines.Scan() {
		var m message
		if err := json.Unmarshal(c.lines.Bytes(), &m); err != nil {
			return nil, err
		}
		switch {
		case m.Method == "elicitation/create":
			fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"Alice"}}}`+"\n", m.ID)
		case m.Method == "" && m.Result == nil:
			return nil, fmt.Errorf("%s: %s", method, c.lines.Bytes())
		case m.Method == "":
			return m.Result, nil
		}
	}
	return nil, fmt.Errorf("%s: no answer", method)
}

// texts joins the texts of a tool's result.
func texts(result json.RawMessage) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	_ = json.Unmarshal(result, &r) // what cannot be read has no texts, and is judged so
	var all strings.Builder
	for _, part := range r.Content {
		all.WriteString(part.Text)
	}
	return all.String()
}

// judge says which answers do not show what they are to show.
func (a answers) judge() []string {
	var bad []string
	for _, e := range modernOnly {
		if !strings.Contains(a.refusals[e.scenario], refusal) {
			bad = append(bad, fmt.Sprintf("the fixture alone does not refuse %s: %q", e.scenario, a.refusals[e.scenario]))
		}
	}
	if !bytes.Contains(a.second, []byte(`"inputRequests":{"step2"`)) || bytes.Contains(a.second, []byte(`"resultType"`)) {
		bad = append(bad, fmt.Sprintf("the fixture alone puts two rounds to a client of the handshake era: %s", a.second))
	}
	return bad
}
