//go:build !linux

package stdio

import "os"

func growPipe(*os.File) {}
