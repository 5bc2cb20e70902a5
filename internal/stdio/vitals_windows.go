package stdio

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/windows"
)

// maxListed bounds how many processes of a job are looked at.
const maxListed = 1024

// jobProcesses is JOBOBJECT_BASIC_PROCESS_ID_LIST of winnt.h.
type jobProcesses struct {
	assigned, listed uint32
	ids              [maxListed]uintptr
}

// processes lists the job.
func (t *tree) processes() ([]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job == 0 {
		return nil, errors.New("the job is closed")
	}
	var info jobProcesses
	err := windows.QueryInformationJobObject(t.job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil, err
	}
	pids := make([]int, 0, info.listed)
	for _, id := range info.ids[:min(info.listed, maxListed)] {
		pids = append(pids, int(id))
	}
	return pids, nil
}
