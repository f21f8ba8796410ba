//! As much of HTTP/1 as a scrape needs: GET and HEAD of one page, one request for each connection.

use std::io::{self, Read, Write};
use std::time::Duration;

use base::Nanos;
use device::nbd::{Listener, Stream};
use rt::Cx;

use super::address::Address;

/// Time that a client has for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the server waits where the host has no descriptor for a client.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(50);
/// Longest head of a request.
const HEAD_MAX: usize = 8 << 10;
/// Longest answer that is taken.
const ANSWER_MAX: u64 = 16 << 20;
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers clients, one after the other, for ever. Blocks the thread.
pub fn serve(cx: &mut Cx, listener: &Listener, page: &dyn Fn() -> String) {
    loop {
        match listener.accept() {
            Ok(mut stream) => {
                let _client_has_left = answer(cx, &mut stream, page);
            }
            Err(_) => cx.sleep(ACCEPT_AGAIN),
        }
    }
}

fn answer(cx: &mut Cx, stream: &mut Stream, page: &dyn Fn() -> String) -> io::Result<()> {
    let head = head(cx, stream)?;
    let mut words = head.split(|byte| byte.is_ascii_whitespace());
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", page()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    if method != b"HEAD" {
        text.push_str(&body);
    }
    stream.set_patience(Some(PATIENCE))?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown();
    Ok(())
}

/// The head of a request, which must come in time.
fn head(cx: &Cx, stream: &mut Stream) -> io::Result<Vec<u8>> {
    let began = cx.now();
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(Duration::from_nanos((cx.now() - began).0));
        if left.is_zero() || head.len() > HEAD_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_patience(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&part[..count]),
        }
    }
    Ok(head)
}

/// The metrics at a place.
///
/// # Errors
/// Nobody is there, or answers with something else.
pub fn get(place: &Address) -> io::Result<String> {
    let mut stream = place.connect()?;
    stream.set_patience(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no metrics are served there");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    match head.split(' ').nth(1) == Some("200") && body.contains("\niopath_info{") {
        true => Ok(body.to_owned()),
        false => Err(wrong()),
    }
}
