package posenc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
)

// TLS names PEM files, which Dial reads. The zero TLS trusts the system's
// authorities.
type TLS struct {
	// Authorities of the server's certificate. Empty: the system's.
	CAFile string
	// This client's own certificate, followed by its issuers, and its key without
	// a passphrase, for servers that require them. Both or none.
	CertFile, KeyFile string
	// The name that the server's certificate must bear. Empty: the target's.
	ServerName string
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, wrongArgument("tls.ca_file", "%v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, wrongArgument("tls.ca_file", "%s: holds no certificate; must be PEM", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, wrongArgument("tls.cert_file", "certificate and key come together")
	}
	if t.CertFile != "" {
		own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, wrongArgument("tls.cert_file", "%s, %s: %v", t.CertFile, t.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// transport returns the credentials for connections to the target.
func transport(target string, o *dialOptions) (credentials.TransportCredentials, error) {
	withToken := o.token != "" || o.tokenFile != ""
	switch {
	case o.tls != nil:
		config, err := o.tls.config()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(config), nil
	case !withToken:
		return insecure.NewCredentials(), nil
	case onThisMachine(target):
		// Plaintext; connections that leave this machine fail.
		return local.NewCredentials(), nil
	default:
		return nil, wrongArgument("token", "would be sent in the clear to %s; must have TLS", target)
	}
}

// onThisMachine judges a target by its text: a unix socket, or loopback.
func onThisMachine(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	for _, scheme := range []string{"dns:///", "dns:", "passthrough:///"} {
		if rest, found := strings.CutPrefix(target, scheme); found {
			target = rest
			break
		}
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = strings.Trim(target, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Shortest time between two checks of a token's file.
const tokenLook = time.Second

// bearer puts a token into every call's headers. Its file is read again when it
// has changed; the old token stays in use while the file cannot be read.
type bearer struct {
	path string

	mutex  sync.Mutex
	token  string
	looked time.Time
	file   os.FileInfo
}

func newBearer(o *dialOptions) (*bearer, error) {
	if o.token != "" && o.tokenFile != "" {
		return nil, wrongArgument("token_file", "excludes token")
	}
	b := &bearer{path: o.tokenFile, token: strings.TrimSpace(o.token), looked: time.Now()}
	if b.path != "" {
		var err error
		if b.token, err = b.read(); err != nil {
			return nil, err
		}
	}
	if !visible(b.token) {
		return nil, wrongArgument("token", "must be one token, of visible characters")
	}
	return b, nil
}

func (b *bearer) read() (string, error) {
	file, err := os.Stat(b.path)
	if err != nil {
		return "", wrongArgument("token_file", "%v", err)
	}
	text, err := os.ReadFile(b.path)
	if err != nil {
		return "", wrongArgument("token_file", "%v", err)
	}
	token := strings.TrimSpace(string(text))
	if !visible(token) {
		return "", wrongArgument("token_file", "%s: must hold one token, of visible characters", b.path)
	}
	b.file = file
	return token, nil
}

// visible returns whether a header can hold the text as one token.
func visible(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return text != ""
}

func (b *bearer) changed() bool {
	file, err := os.Stat(b.path)
	return err == nil && (!os.SameFile(file, b.file) ||
		file.ModTime() != b.file.ModTime() || file.Size() != b.file.Size())
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.path != "" && time.Since(b.looked) >= tokenLook {
		b.looked = time.Now()
		if b.changed() {
			if token, err := b.read(); err == nil {
				b.token = token
			}
		}
	}
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials. transport()
// ensures that a token never leaves this machine in the clear.
func (b *bearer) RequireTransportSecurity() bool { return false }
