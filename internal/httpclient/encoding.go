package httpclient

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// decoded returns the body as it was before it was encoded for the way (RFC
// 9110 section 8.4), whatever was asked for: some servers and proxies compress
// in any case.
func decoded(resp *http.Response) io.ReadCloser {
	body := resp.Body
	var codings []string
	for _, v := range resp.Header.Values("Content-Encoding") {
		for c := range strings.SplitSeq(v, ",") {
			if c = strings.ToLower(strings.TrimSpace(c)); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	if len(codings) == 0 {
		return body
	}
	if len(codings) > 3 {
		return &decoder{closer: body, open: func() (io.Reader, error) { return nil, fmt.Errorf("%w: %d of them", ErrEncoding, len(codings)) }}
	}
	var r io.Reader = body
	for _, c := range slices.Backward(codings) {
		r = &decoder{open: opener(c, r)}
	}
	return struct {
		io.Reader
		io.Closer
	}{r, body}
}

func opener(coding string, r io.Reader) func() (io.Reader, error) {
	return func() (io.Reader, error) {
		switch coding {
		case "gzip", "x-gzip":
			return gzip.NewReader(r)
		case "deflate": // a zlib stream, or what many have sent instead: a bare one
			b := bufio.NewReader(r)
			head, err := b.Peek(2)
			if err != nil {
				return nil, err
			}
			if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
				return zlib.NewReader(b)
			}
			return flate.NewReader(b), nil
		}
		return nil, fmt.Errorf("%w: %.40q", ErrEncoding, coding)
	}
}

// decoder opens what decodes with the first read: its head need not have
// arrived before.
type decoder struct {
	open   func() (io.Reader, error)
	r      io.Reader
	err    error
	closer io.Closer
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	if d.r == nil && d.err == nil {
		d.r, d.err = d.open() // io.EOF if there is no body at all
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.r.Read(p)
}

// Close implements io.Closer.
func (d *decoder) Close() error {
	if d.closer != nil {
		return d.closer.Close()
	}
	return nil
}
