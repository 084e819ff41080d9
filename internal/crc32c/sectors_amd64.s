#include "textflag.h"

// One word of each of four sectors. The unit for CRCs begins one each cycle and needs three: a sector by
// itself would leave it idle for two thirds of the time, and its parts would have to be combined.
#define WORD(at) \
	CRC32Q at(SI), AX       \
	CRC32Q (at+512)(SI), BX \
	CRC32Q (at+1024)(SI), R8 \
	CRC32Q (at+1536)(SI), R9

// func sumFours(b *byte, sums *uint32, fours int)
TEXT ·sumFours(SB), NOSPLIT, $0-24
	MOVQ b+0(FP), SI
	MOVQ sums+8(FP), DI
	MOVQ fours+16(FP), CX

four:
	MOVL $-1, AX
	MOVL $-1, BX
	MOVL $-1, R8
	MOVL $-1, R9
	MOVL $8, DX

line:
	WORD(0)
	WORD(8)
	WORD(16)
	WORD(24)
	WORD(32)
	WORD(40)
	WORD(48)
	WORD(56)
	ADDQ $64, SI
	DECL DX
	JNZ  line

	NOTL AX
	NOTL BX
	NOTL R8
	NOTL R9
	MOVL AX, 0(DI)
	MOVL BX, 4(DI)
	MOVL R8, 8(DI)
	MOVL R9, 12(DI)
	ADDQ $1536, SI
	ADDQ $16, DI
	DECQ CX
	JNZ  four
	RET
