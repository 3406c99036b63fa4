//! A server of one thread that answers each request as the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// A request as the server read it.
#[derive(Debug)]
pub struct Seen {
    /// First line.
    pub line: String,
    /// Header fields: names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Seen {
    /// The value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let field = self.headers.iter().find(|(n, _)| n == name);
        field.map(|(_, value)| value.as_str())
    }
}

/// Answers one request.
pub type Answer = Box<dyn FnOnce(&mut TcpStream) + Send>;

/// A server, and what it has seen.
pub struct Server {
    pub address: String,
    pub seen: Receiver<Seen>,
}

/// Answers the requests one after the other, one for each connection; then refuses.
pub fn serve(answers: Vec<Answer>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, seen) = mpsc::channel();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            sender.send(read(&stream)).unwrap();
            answer(&mut stream);
        }
    });
    Server { address, seen }
}

/// Answers with these bytes and closes.
pub fn says(text: impl Into<Vec<u8>>) -> Answer {
    let bytes = text.into();
    Box::new(move |stream| {
        // The client may have gone.
        let _ = stream.write_all(&bytes);
    })
}

/// A response with this status line and body.
pub fn response(status: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}")
}

/// Reads a request.
pub fn read(stream: &TcpStream) -> Seen {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = Vec::new();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).unwrap();
        let Some((name, value)) = field.trim().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_string()));
    }
    let len = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; len.map_or(0, |(_, len)| len.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let line = line.trim().to_string();
    Seen {
        line,
        headers,
        body,
    }
}
