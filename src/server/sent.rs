//! Values as bytes, for another process of the same build.
//!
//! [`sent!`] declares a struct that is sent field by field, so its declaration is the only list of its fields.

use std::ffi::CString;

use pgrx::pg_sys;

/// A value that can be written as bytes and read again.
pub trait Sent: Sized {
    fn send(&self, to: &mut Vec<u8>);

    /// Reads a value from the beginning of the bytes, and takes these away; None if they are damaged.
    fn receive(from: &mut &[u8]) -> Option<Self>;
}

/// Declares a struct whose fields are [`Sent`], and which is sent itself.
macro_rules! sent {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::server::sent::Sent for $name {
            fn send(&self, to: &mut Vec<u8>) {
                $($crate::server::sent::Sent::send(&self.$field, to);)*
            }

            fn receive(from: &mut &[u8]) -> Option<$name> {
                Some($name { $($field: $crate::server::sent::Sent::receive(from)?,)* })
            }
        }
    };
}
pub(crate) use sent;

macro_rules! sent_numbers {
    ($($type:ty),*) => {
        $(impl Sent for $type {
            fn send(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }

            fn receive(from: &mut &[u8]) -> Option<$type> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(<$type>::from_ne_bytes(*bytes))
            }
        })*
    };
}
sent_numbers!(i16, i32, u32, usize);

impl Sent for bool {
    fn send(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn receive(from: &mut &[u8]) -> Option<bool> {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        Some(*byte != 0)
    }
}

impl Sent for pg_sys::Oid {
    fn send(&self, to: &mut Vec<u8>) {
        self.to_u32().send(to);
    }

    fn receive(from: &mut &[u8]) -> Option<pg_sys::Oid> {
        u32::receive(from).map(pg_sys::Oid::from_u32)
    }
}

impl Sent for Vec<u8> {
    fn send(&self, to: &mut Vec<u8>) {
        self.len().send(to);
        to.extend_from_slice(self);
    }

    fn receive(from: &mut &[u8]) -> Option<Vec<u8>> {
        let len = usize::receive(from)?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(bytes.to_vec())
    }
}

impl Sent for CString {
    fn send(&self, to: &mut Vec<u8>) {
        self.as_bytes().to_vec().send(to);
    }

    fn receive(from: &mut &[u8]) -> Option<CString> {
        CString::new(Vec::receive(from)?).ok()
    }
}

impl<T: Sent> Sent for Vec<T> {
    fn send(&self, to: &mut Vec<u8>) {
        self.len().send(to);
        self.iter().for_each(|element| element.send(to));
    }

    fn receive(from: &mut &[u8]) -> Option<Vec<T>> {
        let count = usize::receive(from)?;
        (0..count).map(|_| T::receive(from)).collect()
    }
}

impl<T: Sent> Sent for Option<T> {
    fn send(&self, to: &mut Vec<u8>) {
        self.is_some().send(to);
        self.iter().for_each(|value| value.send(to));
    }

    fn receive(from: &mut &[u8]) -> Option<Option<T>> {
        if bool::receive(from)? { T::receive(from).map(Some) } else { Some(None) }
    }
}

impl<A: Sent, B: Sent> Sent for (A, B) {
    fn send(&self, to: &mut Vec<u8>) {
        self.0.send(to);
        self.1.send(to);
    }

    fn receive(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::receive(from)?, B::receive(from)?))
    }
}
