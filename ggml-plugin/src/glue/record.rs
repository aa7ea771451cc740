//! Records handed to the host: words whose number depends on the generation. Two words of ours lie
//! before the one that the host is given, so that a function of a table finds its owner without
//! knowing which generation it runs in.
#![allow(unsafe_code)]

/// Owner and length.
const HEADER: usize = 2;

/// A record with these words, as the address of the first.
pub(super) fn create<T>(owner: *const T, words: &[usize]) -> usize {
    let mut all = vec![owner as usize, words.len()];
    all.extend(words);
    let start = Box::into_raw(all.into_boxed_slice()).cast::<usize>();
    // SAFETY: the header lies in the same allocation.
    unsafe { start.add(HEADER) as usize }
}

/// The owner; `None` for null.
///
/// # Safety
/// `record` is null or was created with an owner of this type that still lives, and is not
/// destroyed.
pub(super) unsafe fn owner<'a, T>(record: *const usize) -> Option<&'a T> {
    if record.is_null() {
        return None;
    }
    // SAFETY: the header precedes every record.
    unsafe { (*record.sub(HEADER) as *const T).as_ref() }
}

/// Frees a record and gives back its owner; null for null.
///
/// # Safety
/// As [`owner`], once per record.
pub(super) unsafe fn destroy<T>(record: *mut usize) -> *mut T {
    if record.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the allocation of `create`, with the length noted in it.
    let all = unsafe {
        let start = record.sub(HEADER);
        let len = HEADER + *start.add(1);
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len))
    };
    all[0] as *mut T
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_any_length_leads_to_its_owner() {
        for len in 0..40 {
            let words: Vec<usize> = (0..len).collect();
            let value = Box::into_raw(Box::new(len * 7));
            let record = create(value, &words) as *mut usize;
            // SAFETY: just created with this owner, read within its length, destroyed once.
            unsafe {
                assert_eq!(std::slice::from_raw_parts(record, len), &words[..]);
                assert_eq!(owner::<usize>(record), Some(&(len * 7)));
                assert_eq!(*Box::from_raw(destroy::<usize>(record)), len * 7);
            }
        }
        // SAFETY: null is allowed.
        unsafe {
            assert!(owner::<usize>(std::ptr::null()).is_none());
            assert!(destroy::<usize>(std::ptr::null_mut()).is_null());
        }
    }
}
