package remote

import (
	"errors"
	"net/url"
	"testing"
)

func TestCase57Endpoint(t *testing.T) {
	stream, err := url.Parse("https://h/base/sse")
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{
		"/messages?s=1":                      "https://h/messages?s=1",
		"messages?s=1":                       "https://h/base/messages?s=1",
		"?s=1":                               "https://h/base/sse?s=1",
		" /messages ":                        "https://h/messages",
		"https://h/base/messages":            "https://h/base/messages",
		"https://H:443/base/messages":        "https://H:443/base/messages",
		"/m%20s?s=a%2Fb":                     "https://h/m%20s?s=a%2Fb",
		"http://10.0.0.1:8080/m":             "",
		"http://h/base/messages":             "",
		"//evil.example/m":                   "",
		"https://h:444/m":                    "",
		"":                                   "",
		"https://%zz/":                       "",
		"javascript:alert(1)":                "",
		"https%3A%2F%2Fevil.example%2Fm?s=1": "https://h/base/https%3A%2F%2Fevil.example%2Fm?s=1",
	} {
		got, err := endpoint(stream, data)
		switch {
		case want == "" && !errors.Is(err, errEndpoint):
			t.Errorf("%q: %v, %v; want it refused", data, got, err)
		case want != "" && (err != nil || got.String() != want):
			t.Errorf("%q: %v, %v; want %s", data, got, err, want)
		}
	}
}
