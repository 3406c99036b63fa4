//! Writes `profiles/paper/*.yaml` from `profiles/paper/table1.csv`.

#![expect(clippy::disallowed_methods, reason = "writes files of the repository")]

use e3_power::paper;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/paper");
    for row in paper::table1() {
        let file = dir.join(format!("{}.yaml", row.service));
        std::fs::write(&file, paper::profile_yaml(&row))?;
        println!("wrote profiles/paper/{}.yaml", row.service);
    }
    Ok(())
}
