package main

import (
	"bufio"
	"io"
	"strings"
)

// event is one event of a text/event-stream.
type event struct {
	name, id string
	data     string
}

// events reads a stream; each call of the function returns the next event, and
// an error when the stream ends. ids has the last one even of events without data.
func events(r io.Reader, id *string) func() (event, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	return func() (event, error) {
		var e event
		var data []string
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return e, err
			}
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				if len(data) > 0 {
					e.data, e.id = strings.Join(data, "\n"), *id
					if e.data != "" {
						return e, nil
					}
				}
				e, data = event{}, nil
				continue
			}
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				e.name = value
			case "id":
				*id = value
			case "data":
				data = append(data, value)
			}
		}
	}
}
