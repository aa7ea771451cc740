/* SPDX-License-Identifier: GPL-2.0-only */
/* What 6.18 and 6.19 lack: helpers that came with 7.0. */

#ifndef __ROCKET_COMPAT_H__
#define __ROCKET_COMPAT_H__

#include <linux/slab.h>

#ifndef kmalloc_obj
#define kmalloc_obj(p)		kmalloc(sizeof(p), GFP_KERNEL)
#define kzalloc_obj(p)		kzalloc(sizeof(p), GFP_KERNEL)
#define kmalloc_objs(p, n)	kmalloc_array(n, sizeof(p), GFP_KERNEL)
#define kvmalloc_objs(p, n)	kvmalloc_array(n, sizeof(p), GFP_KERNEL)
#endif

#endif
