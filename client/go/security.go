package posenc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
)

// TLS names PEM files, which NewClient reads. The zero TLS trusts the system's authorities.
type TLS struct {
	// Authorities of the server's certificate. Empty: the system's.
	CAFile string
	// This client's own certificate, followed by its issuers, and its key without a passphrase, for servers that
	// require them. Both or none.
	CertFile, KeyFile string
	// The name that the server's certificate must bear. Empty: the target's.
	ServerName string
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, wrongArgument("tls.ca_file", "%w", err)
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
			return nil, wrongArgument("tls.cert_file", "%s, %s: %w", t.CertFile, t.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// transport returns the credentials for connections to the target.
func (o *dialOptions) transport(target string) (credentials.TransportCredentials, error) {
	switch {
	case o.tls != nil:
		config, err := o.tls.config()
		return credentials.NewTLS(config), err
	case o.token == "" && o.tokenFile == "":
		return insecure.NewCredentials(), nil
	case thisMachine.MatchString(target):
		// Plaintext; connections that leave this machine fail.
		return local.NewCredentials(), nil
	default:
		return nil, wrongArgument("token", "would be sent in the clear to %s; must have TLS", target)
	}
}

// thisMachine matches targets that are, by their text, a unix socket or loopback.
var thisMachine = regexp.MustCompile(`^unix(-abstract)?:|^(dns:(///)?|passthrough:///)?(localhost|127(\.\d+){3}|\[?::1\]?)(:\d+)?$`)

// bearer puts a token into every call's headers. Its file is read again when it has changed; the old token stays in use
// while the file cannot be read.
type bearer struct {
	path string

	mutex   sync.Mutex
	token   string
	changed time.Time
}

func newBearer(token, path string) (*bearer, error) {
	if token != "" && path != "" {
		return nil, wrongArgument("token_file", "excludes token")
	}
	b := &bearer{path: path, token: strings.TrimSpace(token)}
	if path == "" {
		return b, checkToken("token", b.token)
	}
	return b, b.read()
}

// read reads the file, if it has changed.
func (b *bearer) read() error {
	file, err := os.Stat(b.path)
	if err != nil {
		return wrongArgument("token_file", "%w", err)
	}
	if file.ModTime().Equal(b.changed) {
		return nil
	}
	text, err := os.ReadFile(b.path)
	if err != nil {
		return wrongArgument("token_file", "%w", err)
	}
	token := strings.TrimSpace(string(text))
	if err := checkToken("token_file", token); err != nil {
		return err
	}
	b.token, b.changed = token, file.ModTime()
	return nil
}

func checkToken(field, token string) error {
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return wrongArgument(field, "must hold one token, of visible characters")
	}
	return nil
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.path != "" {
		_ = b.read()
	}
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials. transport() ensures that a token never leaves this
// machine in the clear.
func (b *bearer) RequireTransportSecurity() bool { return false }
