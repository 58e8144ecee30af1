// SPDX-License-Identifier: GPL-2.0
/* Helpers of the rdma crate. */

#include <linux/debugfs.h>
#include <linux/dma-buf.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/vmalloc.h>
#include <net/netlink.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

struct ib_umem *rust_helper_ib_umem_get_va(struct ib_device *device,
					   unsigned long addr, size_t size,
					   int access)
{
	return ib_umem_get_va(device, addr, size, access);
}

/* Writes the direct-map address of each page; returns how many there were. */
size_t rust_helper_ib_umem_page_addresses(struct ib_umem *umem, void **out,
					  size_t n)
{
	struct sg_page_iter iter;
	size_t i = 0;

	for_each_sgtable_page(&umem->sgt_append.sgt, &iter, 0) {
		if (i == n)
			break;
		out[i++] = page_address(sg_page_iter_page(&iter));
	}
	return i;
}

/* Whether the umem pins memory of the current process. */
bool rust_helper_ib_umem_is_current(struct ib_umem *umem)
{
	return umem->owning_mm == current->mm;
}

/* Pages of an on-demand umem go: in odp.rs. */
void rxo_odp_pages_go(void *owner, unsigned long first, unsigned long count);

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
#include <linux/hmm.h>
#include <linux/mm.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem_odp.h>

static bool odp_invalidate(struct mmu_interval_notifier *mni,
			   const struct mmu_notifier_range *range,
			   unsigned long seq)
{
	struct ib_umem_odp *odp =
		container_of(mni, struct ib_umem_odp, notifier);
	unsigned long start = max(ib_umem_start(odp), range->start);
	unsigned long end = min(ib_umem_end(odp), range->end);

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&odp->umem_mutex);
	mmu_interval_set_seq(mni, seq);
	if (odp->private && start < end)
		rxo_odp_pages_go(odp->private,
				 (start - ib_umem_start(odp)) >> PAGE_SHIFT,
				 DIV_ROUND_UP(end - start, PAGE_SIZE));
	ib_umem_odp_unmap_dma_pages(odp, start, end);
	mutex_unlock(&odp->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops odp_notifier = {
	.invalidate = odp_invalidate,
};

/* An on-demand umem of pages of the smallest size; none is there yet. */
struct ib_umem_odp *rust_helper_odp_get(struct ib_device *device,
					unsigned long addr, size_t size,
					int access)
{
	return ib_umem_odp_get(device, addr, size,
			       access & ~IB_ACCESS_HUGETLB, &odp_notifier);
}

/* Likewise, for all memory of the process: has no pages, but parts. */
struct ib_umem_odp *rust_helper_odp_get_space(struct ib_device *device,
					      int access)
{
	return ib_umem_odp_alloc_implicit(device, access & ~IB_ACCESS_HUGETLB);
}

struct ib_umem_odp *rust_helper_odp_get_part(struct ib_umem_odp *space,
					     unsigned long addr, size_t size)
{
	return ib_umem_odp_alloc_child(space, addr, size, &odp_notifier);
}

/* Tells @owner of pages that go from now on. */
void rust_helper_odp_set_owner(struct ib_umem_odp *odp, void *owner)
{
	mutex_lock(&odp->umem_mutex);
	odp->private = owner;
	mutex_unlock(&odp->umem_mutex);
}

bool rust_helper_odp_is_writable(struct ib_umem_odp *odp)
{
	return odp->umem.writable;
}

/*
 * Faults pages in, or finds out which are there. After success no page goes
 * until odp_unlock: look at each with odp_page.
 */
int rust_helper_odp_page_in_and_lock(struct ib_umem_odp *odp,
				     unsigned long first, unsigned long count,
				     bool write, bool fault)
{
	u64 start = ib_umem_start(odp) + ((u64)first << PAGE_SHIFT);
	int n = ib_umem_odp_map_dma_and_lock(odp, start,
					     (u64)count << PAGE_SHIFT,
					     write ? HMM_PFN_WRITE : 0, fault);

	return min(n, 0);
}

/* The address of a page, plus 1 if it may be written to; 0: it isn't there. */
unsigned long rust_helper_odp_page(struct ib_umem_odp *odp, unsigned long i)
{
	unsigned long pfn = odp->map.pfn_list[i];

	if (!(pfn & HMM_PFN_VALID))
		return 0;
	return (unsigned long)page_address(hmm_pfn_to_page(pfn)) +
	       !!(pfn & HMM_PFN_WRITE);
}

/*
 * Whether what odp_page gave is mapped: the kernel's map lacks what it must not
 * see, such as memfd_secret's.
 */
bool rust_helper_odp_is_mapped(unsigned long page)
{
	u8 byte;

	return !copy_from_kernel_nofault(&byte, (void *)page, sizeof(byte));
}

/* No page goes between these. */
void rust_helper_odp_lock(struct ib_umem_odp *odp)
{
	mutex_lock(&odp->umem_mutex);
}

void rust_helper_odp_unlock(struct ib_umem_odp *odp)
{
	mutex_unlock(&odp->umem_mutex);
}

/*
 * A page was written to, by other ways than its process's. May be called
 * between the two above alone, as the core does it.
 */
void rust_helper_odp_dirty(unsigned long page)
{
	set_page_dirty(compound_head(virt_to_page((void *)page)));
}

void rust_helper_odp_release(struct ib_umem_odp *odp)
{
	ib_umem_odp_release(odp);
}
#else
struct ib_umem_odp *rust_helper_odp_get(struct ib_device *device,
					unsigned long addr, size_t size,
					int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct ib_umem_odp *rust_helper_odp_get_space(struct ib_device *device,
					      int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct ib_umem_odp *rust_helper_odp_get_part(struct ib_umem_odp *space,
					     unsigned long addr, size_t size)
{
	return ERR_PTR(-EOPNOTSUPP);
}

/* There is none, so the rest is never called. */
void rust_helper_odp_set_owner(struct ib_umem_odp *odp, void *owner)
{
}

bool rust_helper_odp_is_writable(struct ib_umem_odp *odp)
{
	return false;
}

int rust_helper_odp_page_in_and_lock(struct ib_umem_odp *odp,
				     unsigned long first, unsigned long count,
				     bool write, bool fault)
{
	return -EOPNOTSUPP;
}

unsigned long rust_helper_odp_page(struct ib_umem_odp *odp, unsigned long i)
{
	return 0;
}

bool rust_helper_odp_is_mapped(unsigned long page)
{
	return false;
}

void rust_helper_odp_lock(struct ib_umem_odp *odp)
{
}

void rust_helper_odp_unlock(struct ib_umem_odp *odp)
{
}

void rust_helper_odp_dirty(unsigned long page)
{
}

void rust_helper_odp_release(struct ib_umem_odp *odp)
{
}
#endif

void *rust_helper_dmabuf_get(int fd)
{
	return dma_buf_get(fd);
}

void rust_helper_dmabuf_put(void *buf)
{
	dma_buf_put(buf);
}

size_t rust_helper_dmabuf_size(const void *buf)
{
	return ((const struct dma_buf *)buf)->size;
}

int rust_helper_dmabuf_map(void *buf, void **addr)
{
	struct iosys_map map;
	int ret = dma_buf_vmap_unlocked(buf, &map);

	if (ret)
		return ret == -EINVAL ? -EOPNOTSUPP : ret;
	if (map.is_iomem) {
		dma_buf_vunmap_unlocked(buf, &map);
		return -EOPNOTSUPP;
	}
	*addr = map.vaddr;
	return 0;
}

void rust_helper_dmabuf_unmap(void *buf, void *addr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(addr);

	dma_buf_vunmap_unlocked(buf, &map);
}

/* What ib_sg_to_pages fills: its callback is given the ib_mr alone. */
struct sg_pages {
	struct ib_mr mr;
	unsigned long *out;
	u32 max, used;
};

static int set_page(struct ib_mr *mr, u64 addr)
{
	struct sg_pages *pages = container_of(mr, struct sg_pages, mr);

	if (pages->used >= pages->max)
		return -ENOMEM;
	pages->out[pages->used++] = addr;
	return 0;
}

/*
 * Writes the addresses of the pages of a list, of mr->page_size each, and sets
 * mr->iova and mr->length. Returns how many entries of the list that covers.
 */
int rust_helper_ib_sg_to_addresses(struct ib_mr *mr, struct scatterlist *sg,
				   int n, unsigned int *offset,
				   unsigned long *out, u32 max, u32 *used)
{
	struct sg_pages pages = {
		.mr.page_size = mr->page_size, .out = out, .max = max,
	};
	int ret = ib_sg_to_pages(&pages.mr, sg, n, offset, set_page);

	mr->iova = pages.mr.iova;
	mr->length = pages.mr.length;
	*used = pages.used;
	return ret;
}

/* Whether a range begins and ends in memory of the direct map. */
bool rust_helper_is_kernel_memory(const void *p, size_t len)
{
	return virt_addr_valid(p) && virt_addr_valid(p + len - 1);
}

s64 rust_helper_atomic64_fetch_add_at(atomic64_t *word, s64 add)
{
	return atomic64_fetch_add(add, word);
}

s64 rust_helper_atomic64_cmpxchg_at(atomic64_t *word, s64 old, s64 new)
{
	return atomic64_cmpxchg(word, old, new);
}

void rust_helper_atomic64_set_release_at(atomic64_t *word, s64 value)
{
	atomic64_set_release(word, value);
}

void rust_helper_full_barrier(void)
{
	mb();
}

void *rust_helper_vmalloc_user_bytes(unsigned long size)
{
	return vmalloc_user(size);
}

u64 rust_helper_rdma_user_mmap_get_offset(struct rdma_user_mmap_entry *entry)
{
	return rdma_user_mmap_get_offset(entry);
}

/* The context of the process behind a command, NULL for kernel consumers. */
struct ib_ucontext *rust_helper_rdma_udata_context(struct ib_udata *udata)
{
	return udata ? rdma_udata_to_uverbs_attr_bundle(udata)->context : NULL;
}

struct ib_udata *rust_helper_uverbs_driver_udata(struct uverbs_attr_bundle *attrs)
{
	return attrs ? &attrs->driver_udata : NULL;
}


bool rust_helper_ib_device_try_get(struct ib_device *device)
{
	return ib_device_try_get(device);
}

enum ib_mtu rust_helper_ib_mtu_int_to_enum(int mtu)
{
	return ib_mtu_int_to_enum(mtu);
}

struct ib_device *rust_helper_ib_alloc_device_near(size_t size,
						   struct net_device *netdev)
{
	return _ib_alloc_device(size, dev_net(netdev));
}

int rust_helper_ib_register_virtual_device(struct ib_device *device,
					   const char *name)
{
	/* `rdma link add` named it: the udev rule must not rename it. */
	ib_mark_name_assigned_by_user(device);
	return ib_register_device(device, name, NULL);
}

void rust_helper_ib_device_hold_memory(struct ib_device *device)
{
	get_device(&device->dev);
}

void rust_helper_ib_device_release_memory(struct ib_device *device)
{
	put_device(&device->dev);
}

int rust_helper_remap_shared_pages(struct vm_area_struct *vma, void *addr,
				   unsigned long pgoff)
{
	return remap_vmalloc_range(vma, addr, pgoff);
}

void rust_helper_vfree_bytes(const void *addr)
{
	vfree(addr);
}

bool rust_helper_rdma_port_has_roce_v2_gid(struct ib_device *device,
					   const u8 *raw)
{
	const struct ib_gid_attr *attr;
	union ib_gid gid;

	memcpy(gid.raw, raw, sizeof(gid.raw));
	attr = rdma_find_gid_by_port(device, &gid, IB_GID_TYPE_ROCE_UDP_ENCAP,
				     1, NULL);
	if (IS_ERR(attr))
		return false;
	rdma_put_gid_attr(attr);
	return true;
}

/* The driver's part of an object's entry in `rdma resource`. */
void *rust_helper_rdma_driver_nest_start(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

void rust_helper_rdma_driver_nest_end(struct sk_buff *msg, void *nest,
				      bool cancel)
{
	if (cancel)
		nla_nest_cancel(msg, nest);
	else
		nla_nest_end(msg, nest);
}

/* A file's data, which begins with the function that shows it. */
struct shown {
	int (*show)(struct seq_file *seq, void *v);
};

static int shown_open(struct inode *inode, struct file *file)
{
	struct shown *shown = inode->i_private;

	return single_open(file, shown->show, shown);
}

/* Whoever has it open keeps the module: release and these are part of it. */
static const struct file_operations shown_fops = {
	.owner = THIS_MODULE,
	.open = shown_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

struct dentry *rust_helper_debug_new_file(const char *name, struct dentry *dir,
					  void *shown)
{
	return debugfs_create_file(name, 0400, dir, shown, &shown_fops);
}

struct dentry *rust_helper_debug_new_dir(const char *name, struct dentry *dir)
{
	return debugfs_create_dir(name, dir);
}

void rust_helper_debug_remove(struct dentry *dentry)
{
	debugfs_remove(dentry);
}
