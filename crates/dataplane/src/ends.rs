//! Numbers of channel ends, and the tables that find them by their place in the plan.

use crate::app::Cell;
use e3_model::AppId;
use std::collections::BTreeMap;

/// Number of a sending or of a receiving end in its table. A number is used again when its end is
/// gone, so whoever keeps one compares the link too, or does no harm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndId(u32);

impl EndId {
    pub(crate) fn new(at: usize) -> EndId {
        EndId(u32::try_from(at).expect("fewer ends than messages"))
    }

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Ends by their place.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Vec<Option<EndId>>>);

impl Table {
    pub(crate) fn get(&self, cell: Cell) -> Option<EndId> {
        *self.0.get(cell.row)?.get(cell.column)?
    }

    pub(crate) fn set(&mut self, cell: Cell, id: EndId) {
        if self.0.len() <= cell.row {
            self.0.resize_with(cell.row + 1, Vec::new);
        }
        let row = &mut self.0[cell.row];
        if row.len() <= cell.column {
            row.resize(cell.column + 1, None);
        }
        row[cell.column] = Some(id);
    }
}

/// Removes an end from its application's table.
pub(crate) fn forget(tables: &mut BTreeMap<AppId, Table>, app: AppId, id: EndId) {
    let rows = tables.get_mut(&app).map(|t| t.0.iter_mut());
    for cell in rows.into_iter().flatten().flatten() {
        cell.take_if(|at| *at == id);
    }
}
