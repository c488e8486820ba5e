'use strict';
// Calls the server's methods in /v1/, a few at a time.

// An error that the server reports, or a failed connection to the server.
class Fault extends Error {
  constructor(code, reason, message) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

const GONE = 'The explorer does not answer. Start posenc explore again with the same --port; ' +
    'the page still shows its last answers.';

// The server works on about two calls per core at a time, and other clients
// make calls, too. More calls of this page would only wait.
const MOST_AT_ONCE = 3;
let asking = 0;
const waiting = [];

async function turn() {
  if (asking >= MOST_AT_ONCE) await new Promise(resolve => waiting.push(resolve));
  asking += 1;
}

function done() {
  asking -= 1;
  if (waiting.length > 0) waiting.shift()();
}

async function ask(method, message) {
  await turn();
  try {
    return await askNow(method, message);
  } finally {
    done();
  }
}

async function askNow(method, message) {
  const request = {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify(message),
  };
  let response, text;
  // Makes a failed call once more. The server closes silent connections, so
  // that a browser that was suspended loses its connection. If the server is
  // gone, the second call fails too.
  for (let tries = 1; text === undefined; ++tries) {
    try {
      response = await fetch('/v1/' + method, request);
      text = await response.text();
    } catch (error) {
      if (tries === 2) throw new Fault('UNAVAILABLE', '', GONE);
    }
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    throw new Fault('UNKNOWN', '', 'The server refused: ' + (text.trim() || 'HTTP ' + response.status));
  }
  if (response.ok) return answer;
  const told = answer.error || {};
  throw new Fault(told.code, told.reason, told.message || 'HTTP ' + response.status);
}

// Shortens an error message. The request has the configuration in two fields,
// so the message may name both.
function plainFact(message) {
  return message.replace(/ \(\d+ more: [^)]*\)$/, '').replace(/^(rope|compare_with)\.config_json\b/, 'config.json');
}

// Returns the values of a tensor whose data is base64 of little-endian float32.
function floats(tensor) {
  const bytes = Uint8Array.from(atob(tensor.data), c => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function toBase64(bytes) {
  let text = '';
  for (let i = 0; i < bytes.length; i += 0x8000) {
    text += String.fromCharCode.apply(null, bytes.subarray(i, i + 0x8000));
  }
  return btoa(text);
}
