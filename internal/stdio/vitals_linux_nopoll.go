//go:build linux && (arm64 || loong64 || riscv64)

package stdio

// sysPoll is no system call here, where poll(3) is ppoll(2).
const sysPoll = -1
