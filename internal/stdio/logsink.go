package stdio

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	logRoom = 64                     // records between us and the log
	logWait = 500 * time.Millisecond // for the log to take them, in the end
)

// logSink keeps a log that stands still, as one does whose stderr nobody reads,
// from holding up what writes to it: then records are left out, and counted.
type logSink struct {
	log     *slog.Logger
	records chan slog.Record // closed by close
	dropped atomic.Int64
	done    chan struct{} // closed when forward returns
}

func newLogSink(log *slog.Logger) *logSink {
	s := &logSink{log: log, records: make(chan slog.Record, logRoom), done: make(chan struct{})}
	go s.forward() // ends after close, with the last write of the log
	return s
}

// add logs if there is room. Not to be called after close.
func (s *logSink) add(level slog.Level, msg string, attrs ...slog.Attr) {
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	r := slog.NewRecord(time.Now(), level, msg, 0)
	r.AddAttrs(attrs...)
	select {
	case s.records <- r:
	default:
		s.dropped.Add(1)
	}
}

// close waits for the log to take the rest, but not for ever.
func (s *logSink) close() {
	close(s.records)
	select {
	case <-s.done:
	case <-time.After(logWait):
	}
}

// forward leaves errors of the log to the log, as slog.Logger does.
func (s *logSink) forward() {
	defer close(s.done)
	for r := range s.records {
		_ = s.log.Handler().Handle(context.Background(), r)
		s.reportDropped()
	}
	s.reportDropped()
}

func (s *logSink) reportDropped() {
	if n := s.dropped.Swap(0); n > 0 {
		s.log.Warn("log records left out: the log is too slow", "records", n)
	}
}
