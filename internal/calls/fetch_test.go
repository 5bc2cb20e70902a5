package calls

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnfetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u Unfetched
		want := func(n int) {
			t.Helper()
			if got := u.Count(); got != n {
				t.Errorf("%d are not fetched, want %d", got, n)
			}
		}
		want(0)
		u.Fetched("nobody's")
		u.Began("a")
		u.Began("b")
		u.Began("c")
		time.Sleep(time.Hour)
		want(3)
		u.Ended("a")
		time.Sleep(FetchTime / 2)
		u.Ended("b")
		want(3)
		u.Fetched("b")
		want(2)
		time.Sleep(FetchTime * 3 / 4) // nobody comes for "a"
		want(1)
		u.Fetched("c")
		for i := range 3 * MaxTasks { // nor for these
			u.Ended(strconv.Itoa(i))
			if i%MaxTasks == 0 {
				time.Sleep(FetchTime + time.Second)
			}
		}
		if got := len(u.ended); got > 2*MaxTasks {
			t.Errorf("%d are kept", got)
		}
	})
}
