package main

import (
	"net"
	"net/http"
	"time"
)

// slowWeb answers any request after as long as it asks for.
type slowWeb struct {
	url    string
	server *http.Server
	done   chan struct{}
}

func startSlowWeb() (*slowWeb, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &slowWeb{
		url:    "http://" + listener.Addr().String(),
		server: &http.Server{Handler: http.HandlerFunc(slowly), ReadHeaderTimeout: time.Second},
		done:   make(chan struct{}),
	}
	go func() { // ends with stop
		defer close(w.done)
		w.server.Serve(listener)
	}()
	return w, nil
}

func slowly(w http.ResponseWriter, r *http.Request) {
	after, err := time.ParseDuration(r.URL.Query().Get("after"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(after):
		w.Write([]byte("at last\n"))
	}
}

func (w *slowWeb) stop() {
	w.server.Close()
	<-w.done
}
