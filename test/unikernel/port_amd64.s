#include "textflag.h"

// func outByte(port uint16, value byte)
TEXT ·outByte(SB), NOSPLIT, $0-3
	MOVW port+0(FP), DX
	MOVB value+2(FP), AX
	OUTB
	RET
