//! The scans of the wrapper's foreign tables anywhere below a path.

use pgrx::pg_sys::NodeTag;
use pgrx::{PgList, pg_sys};

use crate::load::wrapper::Wrapper;

/// Finds them. Guarded.
///
/// # Safety
/// A valid path.
pub unsafe fn below(path: *mut pg_sys::Path) -> Vec<*mut pg_sys::ForeignPath> {
    let mut found = Vec::new();
    let mut left = vec![path];
    while let Some(path) = left.pop() {
        // SAFETY: this function's contract covers the path; tags give the node types.
        unsafe {
            macro_rules! below {
                ($path:ident) => {
                    left.push((*path.cast::<pg_sys::$path>()).subpath)
                };
            }
            match (*path).type_ {
                NodeTag::T_ForeignPath if Wrapper::get().is_ok_and(|wrapper| wrapper.has((*path).parent)) => {
                    found.push(path.cast());
                }
                NodeTag::T_AppendPath => {
                    let paths = PgList::<pg_sys::Path>::from_pg((*path.cast::<pg_sys::AppendPath>()).subpaths);
                    left.extend(paths.iter_ptr());
                }
                NodeTag::T_MergeAppendPath => {
                    let paths = PgList::<pg_sys::Path>::from_pg((*path.cast::<pg_sys::MergeAppendPath>()).subpaths);
                    left.extend(paths.iter_ptr());
                }
                NodeTag::T_NestPath | NodeTag::T_MergePath | NodeTag::T_HashPath => {
                    let join = path.cast::<pg_sys::JoinPath>();
                    left.extend([(*join).innerjoinpath, (*join).outerjoinpath]);
                }
                NodeTag::T_ProjectionPath => below!(ProjectionPath),
                NodeTag::T_ProjectSetPath => below!(ProjectSetPath),
                NodeTag::T_SubqueryScanPath => below!(SubqueryScanPath),
                NodeTag::T_MaterialPath => below!(MaterialPath),
                NodeTag::T_MemoizePath => below!(MemoizePath),
                NodeTag::T_SortPath | NodeTag::T_IncrementalSortPath => below!(SortPath),
                NodeTag::T_GroupPath => below!(GroupPath),
                NodeTag::T_AggPath => below!(AggPath),
                NodeTag::T_WindowAggPath => below!(WindowAggPath),
                NodeTag::T_UniquePath => below!(UniquePath),
                NodeTag::T_UpperUniquePath => below!(UpperUniquePath),
                NodeTag::T_LockRowsPath => below!(LockRowsPath),
                NodeTag::T_LimitPath => below!(LimitPath),
                _ => (),
            }
        }
    }
    found.reverse();
    found
}
