//! Serves the files of an image over HTTP: `cargo run --example web_server -- disk.img 8080`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result};
use image::{Errno, Fs, Image};

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let (listener, fs) = open(&mut args)?;
    for stream in listener.incoming() {
        if let Err(error) = answer(&fs, stream?) {
            eprintln!("{error:#}");
        }
    }
    Ok(())
}

pub fn open(args: &mut impl Iterator<Item = OsString>) -> Result<(TcpListener, Fs)> {
    let fs = Image::open(args.next().context("give an image")?)?.fs()?;
    let port = args.next().map_or(Ok(8080), |port| port.to_string_lossy().parse())?;
    Ok((TcpListener::bind(("127.0.0.1", port))?, fs))
}

pub fn answer(fs: &Fs, mut stream: TcpStream) -> Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let path = line.split(' ').nth(1).context("not a request of HTTP")?;
    let mut file = match fs.open(path) {
        Ok(file) => file,
        Err(error) => {
            let status = match error.errno() {
                Errno::ENOENT | Errno::ENOTDIR => "404 Not Found",
                _ => "500 Internal Server Error",
            };
            return Ok(write!(stream, "HTTP/1.0 {status}\r\n\r\n{error}\n")?);
        }
    };
    let len = file.metadata()?.len();
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {len}\r\n\r\n")?;
    std::io::copy(&mut file, &mut stream)?;
    Ok(())
}
