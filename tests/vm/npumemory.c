// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory as a core of the fake NPU sees it: /dev/npumemory is read and written at
 * (core << 40 | device address), and each page is found through the IOMMU domain
 * that the core has attached at that moment. What is not mapped there, or is no RAM,
 * gives EFAULT, as a translation fault would.
 */

#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/uaccess.h>

#define CORE_SHIFT 40

static const char * const names[] = { "7f000000.npu", "7f010000.npu", "7f020000.npu" };
static struct device *cores[ARRAY_SIZE(names)];

/* Where the core's next bytes are, and how many of them lie together. */
static void *translate(loff_t at, size_t *len)
{
	u64 core = (u64)at >> CORE_SHIFT, iova = at & (BIT_ULL(CORE_SHIFT) - 1);
	struct iommu_domain *domain;
	phys_addr_t phys;

	if (core >= ARRAY_SIZE(cores))
		return NULL;
	domain = iommu_get_domain_for_dev(cores[core]);
	if (!domain)
		return NULL;
	phys = iommu_iova_to_phys(domain, iova);
	if (!phys || !page_is_ram(PHYS_PFN(phys)))
		return NULL;
	*len = min_t(size_t, *len, PAGE_SIZE - offset_in_page(phys));
	return phys_to_virt(phys);
}

static ssize_t npumemory_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	size_t done = 0;

	while (done < count) {
		size_t len = count - done;
		void *from = translate(*pos + done, &len);

		if (!from || copy_to_user(to + done, from, len))
			return -EFAULT;
		done += len;
	}
	*pos += done;
	return done;
}

static ssize_t npumemory_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	size_t done = 0;

	while (done < count) {
		size_t len = count - done;
		void *to = translate(*pos + done, &len);

		if (!to || copy_from_user(to, from + done, len))
			return -EFAULT;
		done += len;
	}
	*pos += done;
	return done;
}

static const struct file_operations npumemory_fops = {
	.owner = THIS_MODULE,
	.read = npumemory_read,
	.write = npumemory_write,
	.llseek = default_llseek,
};

static struct miscdevice npumemory = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "npumemory",
	.fops = &npumemory_fops,
};

static void put_cores(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(cores); i++)
		put_device(cores[i]);
}

static int __init npumemory_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(cores); i++) {
		cores[i] = bus_find_device_by_name(&platform_bus_type, NULL, names[i]);
		if (!cores[i]) {
			put_cores();
			return -ENODEV;
		}
	}
	err = misc_register(&npumemory);
	if (err)
		put_cores();
	return err;
}
module_init(npumemory_init);

static void __exit npumemory_exit(void)
{
	misc_deregister(&npumemory);
	put_cores();
}
module_exit(npumemory_exit);

MODULE_DESCRIPTION("Memory as a core of the fake NPU sees it");
MODULE_LICENSE("GPL");
