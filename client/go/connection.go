package posenc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/health" // the service config's health check
	"google.golang.org/grpc/keepalive"
)

// A connection reads and writes bufferBytes at once. With gRPC's default of 32 KiB, sending 64 MiB over loopback took a
// third more processor time. The flow-control windows are so large that tensors and answers never wait for them.
const (
	bufferBytes      = 256 << 10
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

func (c *Client) dialing() ([]grpc.DialOption, error) {
	security, err := c.security(c.target)
	if err != nil {
		return nil, err
	}
	// A retry of a call helps only if gRPC has tried to reconnect before the retry. So gRPC first reconnects after 100
	// ms, which is the first backoff of retries. By default gRPC would wait for 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	return append(security,
		grpc.WithUserAgent("posenc-go/"+Version),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // a config from DNS would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// On Linux gRPC sets TCP_USER_TIMEOUT to this timeout. The kernel then ends connections to machines that are gone,
		// and to peers that read nothing. gRPC sets TCP_USER_TIMEOUT only if it also sends pings. Here it sends only one
		// ping an hour, because servers close connections that ping often.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: c.stuckTimeout}),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithUnaryInterceptor(c.unary),
		grpc.WithStreamInterceptor(c.stream),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(int(c.maxMessageBytes)),
			grpc.MaxCallSendMsgSize(int(c.maxMessageBytes)),
			// A call that has sent more bytes than this is not retried. gRPC's default of 256 KiB would exclude most tensors.
			// gRPC keeps references to the messages, not copies.
			grpc.MaxRetryRPCBufferSize(int(c.maxMessageBytes)),
			grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")}),
		),
	), nil
}

// TLS names PEM files, which NewClient reads. The zero TLS trusts the system's certificate authorities.
type TLS struct {
	CAFile string // certificate authorities that the client trusts; empty: the system's
	// The client certificate, for servers that require one. CertFile has the certificate, followed by its issuers.
	// KeyFile has the certificate's key, without a passphrase. Set both files or neither.
	CertFile, KeyFile string
	ServerName        string // name that the server's certificate must have; empty: the target's name
}

func (t TLS) credentials() (credentials.TransportCredentials, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, wrongArgument("tls.ca_file", "%w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, wrongArgument("tls.ca_file", "%s: holds no certificate; must be PEM", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, wrongArgument("tls.cert_file", "must be a pair with tls.key_file: %w", err)
		}
		settings.Certificates = []tls.Certificate{own}
	}
	return credentials.NewTLS(settings), nil
}

// security returns the credentials for connections to the target.
func (c *config) security(target string) ([]grpc.DialOption, error) {
	transport, err := insecure.NewCredentials(), error(nil)
	if c.tls != nil {
		if transport, err = c.tls.credentials(); err != nil {
			return nil, err
		}
	}
	if c.token == "" && c.tokenFile == "" {
		return []grpc.DialOption{grpc.WithTransportCredentials(transport)}, nil
	}
	if c.tls == nil {
		if !thisMachine.MatchString(target) {
			return nil, wrongArgument("token", "would be sent in the clear to %s; must have TLS", target)
		}
		transport = local.NewCredentials() // plaintext; connections to other machines fail
	}
	token := &bearer{file: c.tokenFile}
	switch {
	case c.tokenFile == "":
		err = token.use("token", c.token)
	case c.token != "":
		err = wrongArgument("token_file", "excludes token")
	default:
		err = token.read()
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(transport), grpc.WithPerRPCCredentials(token)}, err
}

// thisMachine matches targets whose text shows that they are a unix socket or loopback.
var thisMachine = regexp.MustCompile(`^unix(-abstract)?:|^(dns:(///)?|passthrough:///)?(localhost|127(\.\d+){3}|\[?::1\]?)(:\d+)?$`)

// bearer puts a token into every call's headers. The token's file is read each time, because tokens expire. While the
// file cannot be read, the last good token stays in use.
type bearer struct {
	file   string // empty: the token never changes
	header atomic.Value
}

func (b *bearer) read() error {
	text, err := os.ReadFile(b.file)
	if err != nil {
		return wrongArgument("token_file", "%w", err)
	}
	return b.use("token_file", string(text))
}

func (b *bearer) use(field, text string) error {
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return wrongArgument(field, "must hold one token, of visible characters")
	}
	b.header.Store("Bearer " + token)
	return nil
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b.file != "" {
		_ = b.read()
	}
	return map[string]string{"authorization": b.header.Load().(string)}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials: security() refuses plaintext to other machines.
func (b *bearer) RequireTransportSecurity() bool { return false }
