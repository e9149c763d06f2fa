// SPDX-License-Identifier: MIT
//! What the opener is asked, and what it answers: one packet each, a descriptor beside it.

/// Most bytes of a packet.
pub(crate) const MOST: usize = 1 << 17;
/// Most bytes that are read of a descriptor at a time.
pub(crate) const MOST_READ: usize = 1 << 16;
/// Most groups that a process has.
pub(crate) const MOST_GROUPS: usize = 1 << 16;
/// Most groups of a stranger that are believed; without the others it may read less.
pub(crate) const BELIEVED_GROUPS: usize = 64;

/// What is asked.
pub(crate) const OPEN: u32 = 1;
pub(crate) const FACTS: u32 = 2;
/// Where a path inside a folder leads, as we would call it.
pub(crate) const RESOLVE: u32 = 3;
/// A call of a copy: faccessat2, newfstatat, statx.
pub(crate) const CALL: u32 = 4;
/// A part of a file.
pub(crate) const READ: u32 = 5;
/// The facts, and who answers for the file.
pub(crate) const KIND: u32 = 6;

/// The base is the root: links don't lead out of it.
pub(crate) const IN_ROOT: u32 = 1;
/// With the rights of the process: its user, its groups, none of our capabilities.
pub(crate) const WITH_RIGHTS: u32 = 2;
pub(crate) const KEEP_CAPABILITIES: u32 = 4;
pub(crate) const NO_FOLLOW: u32 = 8;
/// A path that leads through /proc is not answered.
pub(crate) const OUTSIDE_PROC: u32 = 16;
/// Tell whether it may be written.
pub(crate) const FOR_WRITING: u32 = 32;

/// Answers that are neither results nor numbers of errors.
pub(crate) const NOT_REGULAR: i64 = -5001;
pub(crate) const OTHER_KIND: i64 = -5002;
pub(crate) const TOO_LARGE: i64 = -5003;
pub(crate) const FORBIDDEN: i64 = -5004;
pub(crate) const UNCERTAIN: i64 = -5005;
pub(crate) const LEASED: i64 = -5007;
/// It goes on; the answer comes later.
pub(crate) const GOES_ON: i64 = -5006;

/// Behind it: the groups, the base and the path, each text with a zero at its end.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Request {
    pub what: u32,
    pub flags: u32,
    /// Bits of [`crate::Kind`].
    pub accepts: u32,
    pub uid: u32,
    pub gid: u32,
    pub groups: u32,
    /// With their zeroes; 0: no base.
    pub base_bytes: u32,
    pub path_bytes: u32,
    pub numbers: [u64; 3],
}

/// What stat(2) says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Facts {
    /// st_dev.
    pub device: u64,
    /// st_ino.
    pub inode: u64,
    /// st_mode.
    pub mode: u32,
    /// Nonzero if whoever asked so may write to it.
    pub(crate) may_write: u32,
    /// st_size.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: i64,
    /// The rest of that, in ns.
    pub modified_ns: i64,
    /// The last change of its state, in seconds since 1970.
    pub changed: i64,
}

impl Facts {
    /// One of its `S_IFMT`.
    pub fn is(&self, kind: u32) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    /// May it be written by whoever asked for that?
    pub fn may_be_written(&self) -> bool {
        self.may_write != 0
    }
}

/// Behind it: bytes.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Reply {
    pub status: i64,
    pub f_type: i64,
    pub facts: Facts,
    pub bytes: u64,
}

/// The bytes of a structure of plain numbers.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: plain numbers without gaps, as all structures here.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The structure at the beginning of these bytes.
pub(crate) fn from_bytes<T: Copy + Default>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<T>())?;
    let mut value = T::default();
    // SAFETY: as many bytes; any bytes are numbers.
    unsafe {
        let to = std::ptr::from_mut(&mut value).cast::<u8>();
        to.copy_from_nonoverlapping(head.as_ptr(), head.len());
    }
    Some((value, rest))
}

/// One packet, with a descriptor or without. The number of bytes, or that of the error.
pub(crate) fn send(socket: i32, parts: &[&[u8]], descriptor: Option<i32>) -> Result<usize, i32> {
    let mut vectors = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; 5];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        vector.iov_base = part.as_ptr().cast_mut().cast();
        vector.iov_len = part.len();
    }
    let mut control = [0u64; 4];
    // SAFETY: a structure of plain numbers and pointers to what lives on; the control buffer is
    // aligned and larger than a header and a descriptor. The call only reads.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = parts.len().min(vectors.len());
        if let Some(descriptor) = descriptor {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            libc::CMSG_DATA(header)
                .cast::<i32>()
                .write_unaligned(descriptor);
        }
        let sent = libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL);
        usize::try_from(sent).map_err(|_| *libc::__errno_location())
    }
}

/// The same in the other direction; 0 bytes: the other end is gone. The descriptor is the caller's.
pub(crate) fn receive(socket: i32, buffer: &mut [u8]) -> Result<(usize, Option<i32>), i32> {
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = [0u64; 4];
    // SAFETY: as above; the kernel writes into the two buffers.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let got = libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC);
        let got = usize::try_from(got).map_err(|_| *libc::__errno_location())?;
        let header = libc::CMSG_FIRSTHDR(&message);
        let has_one = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let descriptor = has_one.then(|| libc::CMSG_DATA(header).cast::<i32>().read_unaligned());
        Ok((got, descriptor))
    }
}
