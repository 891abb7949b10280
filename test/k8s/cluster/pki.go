package cluster

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster and writes them below dir.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// newAuthority creates a CA in a new directory.
func newAuthority(dir string) (*authority, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: "podd-k8s-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := errors.Join(a.writeKey("ca.key", a.key), a.write("ca.crt", "CERTIFICATE", der)); err != nil {
		return nil, err
	}
	return a, nil
}

// serviceAccounts creates the key pair that signs the tokens of service accounts.
func (a *authority) serviceAccounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return errors.Join(a.writeKey("sa.key", key), a.write("sa.pub", "PUBLIC KEY", public))
}

// certificate returns a template with what all certificates have in common.
func certificate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(time.Now().UnixNano()), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// identity is a client or server of the API server's PKI. The subject's common name is the user name, its organization
// the group.
type identity struct {
	file, user, group string
	dns               []string
	ips               []net.IP
}

// issue writes <file>.crt and <file>.key.
func (a *authority) issue(id identity) error {
	subject := pkix.Name{CommonName: id.user}
	if id.group != "" {
		subject.Organization = []string{id.group}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(subject)
	template.DNSNames, template.IPAddresses = id.dns, id.ips
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", id.user, err)
	}
	return errors.Join(a.writeKey(id.file+".key", key), a.write(id.file+".crt", "CERTIFICATE", der))
}

func (a *authority) writeKey(file string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return a.write(file, "PRIVATE KEY", der)
}

func (a *authority) write(file, kind string, der []byte) error {
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, file), b.Bytes(), 0o600)
}

// kubeconfig writes <file>.kubeconfig for an identity that has been issued, with its certificate and key.
func (a *authority) kubeconfig(file, server string) error {
	at := func(name string) string { return filepath.Join(a.dir, name) }
	cert, certErr := os.ReadFile(at(file + ".crt"))
	key, err := os.ReadFile(at(file + ".key"))
	if err := errors.Join(certErr, err); err != nil {
		return err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	data, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "podd",
		// kubeadm copies this to the nodes that join.
		"clusters": []object{{"name": "podd", "cluster": object{"server": server, "certificate-authority-data": ca}}},
		"users":    []object{{"name": file, "user": object{"client-certificate-data": cert, "client-key-data": key}}},
		"contexts": []object{{"name": "podd", "context": object{"cluster": "podd", "user": file}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(at(file+".kubeconfig"), data, 0o600)
}
