/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of x86 for CRC-32 by carry-less multiplication, from the
 * kernel's tree: User Mode Linux is built without them. See net.c.
 */
#define RET ret
#include "crc32-pclmul.S"
