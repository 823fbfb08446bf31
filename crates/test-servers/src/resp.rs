//! Minimal clients of Redis's protocol and of HTTP, to read a server's state.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a server on this machine may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Sends one command to the Redis at `port` and returns the text of its answer, or the server's error.
pub(crate) fn call(port: u16, command: &[&str]) -> io::Result<String> {
    let mut stream = connect(port)?;
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", text)) => Ok(text.to_owned()),
        Some(("$", length)) => {
            let length = length.parse().map_err(io::Error::other)?;
            let mut text = vec![0; length];
            reader.read_exact(&mut text)?;
            String::from_utf8(text).map_err(io::Error::other)
        }
        _ => Err(io::Error::other(line.to_owned())),
    }
}

/// Returns the value of a field in an answer that consists of lines `field:value`.
pub(crate) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Returns whether the Redis server with this process id listens on `port`.
pub(crate) fn is_ready(port: u16, pid: &str) -> bool {
    match call(port, &["INFO"]) {
        Ok(info) => field(&info, "process_id") == Some(pid) && field(&info, "loading") == Some("0"),
        // The server requires a password, so it is up. Only this server can have the port.
        Err(error) => error.to_string().contains("NOAUTH"),
    }
}

/// Returns whether a server answers an HTTP request at `port`.
pub(crate) fn answers_http(port: u16) -> bool {
    let ask = || {
        let mut stream = connect(port)?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
        let mut start = [0; 5];
        stream.read_exact(&mut start)?;
        io::Result::Ok(start == *b"HTTP/")
    };
    ask().unwrap_or(false)
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}
