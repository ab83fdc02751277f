//! Finds the browser Chromium, and installs puppeteer, the Node.js package that controls the
//! browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const DRIVER: &str = "25.16.0";

/// Returns the folder from which Node.js loads puppeteer, and the path of the browser.
pub(super) fn browser() -> Result<(PathBuf, PathBuf), String> {
    let programs = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let browser = programs.iter().map(Path::new).find(|program| program.exists());
    let browser = browser.ok_or("Chromium is not installed: it is Debian's package chromium")?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("puppeteer-{DRIVER}"));
    let is_installed = || {
        let read =
            "JSON.parse(require('fs').readFileSync('node_modules/puppeteer-core/package.json'))";
        let check = format!("if ({read}.version !== '{DRIVER}') process.exit(1)");
        run(Command::new("node").current_dir(&folder).args(["-e", &check]))
    };
    if !folder.exists() || is_installed().is_err() {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        run(install.arg(&folder).arg(format!("puppeteer-core@{DRIVER}")))?;
        is_installed()?;
    }
    Ok((folder, browser.to_path_buf()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&printed)))
}
