package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// record is one line of what the load tool wrote: one run of one system.
type record struct {
	Suite  string `json:"suite"`
	System string `json:"system"`
	Error  string `json:"error"`
	Output struct {
		Result map[string]any `json:"result"`
	} `json:"output"`
}

// runs are the records of one suite and system, in the order they were made.
type runs []record

type results map[string]runs

func load(r io.Reader) (results, error) {
	all := results{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var rec record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		key := rec.Suite + " " + rec.System
		all[key] = append(all[key], rec)
	}
	return all, lines.Err()
}

func (r results) of(suite, system string) runs { return r[suite+" "+system] }

// failed counts the runs that ended without a result.
func (r runs) failed() (n int) {
	for _, rec := range r {
		if rec.Error != "" {
			n++
		}
	}
	return n
}

// numbers are the values found under a path, one a run; true counts as 1, and
// a number left out as 0, as the tool leaves out its zeros.
func (r runs) numbers(path ...string) []float64 {
	var all []float64
	for _, rec := range r {
		if rec.Error != "" {
			continue
		}
		var v any = rec.Output.Result
		for _, p := range path {
			m, _ := v.(map[string]any)
			v = m[p]
		}
		switch x := v.(type) {
		case float64:
			all = append(all, x)
		case bool:
			n := 0.0
			if x {
				n = 1
			}
			all = append(all, n)
		default:
			all = append(all, 0)
		}
	}
	return all
}

// median is the middle one, of an even number the upper.
func (r runs) median(path ...string) float64 {
	all := r.numbers(path...)
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// worst is the highest: what must never happen may not hide behind a median.
func (r runs) worst(path ...string) float64 {
	all := r.numbers(path...)
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}

// text is what the last run says under a name.
func (r runs) text(name string) string {
	if len(r) == 0 {
		return "–"
	}
	s, _ := r[len(r)-1].Output.Result[name].(string)
	return s
}
