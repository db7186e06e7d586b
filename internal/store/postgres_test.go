package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
)

// cluster is the PostgreSQL that all tests of the package share; TestMain ends it.
var cluster struct {
	sync.Mutex
	dir   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	port  int
	err   error
	next  int
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c := cluster.cmd; c != nil {
		c.Process.Signal(syscall.SIGINT) // fast shutdown
		<-cluster.ended
	}
	if cluster.dir != "" {
		os.RemoveAll(cluster.dir)
	}
	os.Exit(code)
}

// postgres is the address of a new, empty database in a real PostgreSQL on the loopback.
func postgres(t *testing.T) string {
	t.Helper()
	initdb := material.Tool(t, "initdb", "/usr/lib/postgresql/*/bin/initdb")
	cluster.Lock()
	defer cluster.Unlock()
	if cluster.cmd == nil && cluster.err == nil {
		cluster.err = startPostgres(initdb)
	}
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	cluster.next++
	name := fmt.Sprintf("weir%d", cluster.next)
	db, err := sql.Open("pgx", address("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return address(name)
}

func address(db string) string {
	return fmt.Sprintf("postgres://weir:secret@127.0.0.1:%d/%s?sslmode=disable", cluster.port, db)
}

// startPostgres makes and starts a cluster; as root it runs as the user postgres, whom the
// package made, because PostgreSQL refuses to run as root.
func startPostgres(initdb string) error {
	dir, err := os.MkdirTemp("", "weir-postgres-")
	if err != nil {
		return err
	}
	cluster.dir = dir
	var cred *syscall.SysProcAttr
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		cred = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if err := os.Chown(dir, uid, gid); err != nil {
			return err
		}
	}
	pw := filepath.Join(dir, "pw")
	if err := os.WriteFile(pw, []byte("secret\n"), 0o644); err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	initCmd := exec.CommandContext(ctx, initdb, "-D", data, "-U", "weir", "--pwfile="+pw, "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C")
	initCmd.SysProcAttr, initCmd.Dir = cred, dir
	if out, err := initCmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %v: %s", err, out)
	}
	for try := 1; ; try++ { // another process may take the port before PostgreSQL does
		err := servePostgres(initdb, data, cred)
		if err == nil || try == 5 {
			return err
		}
	}
}

// servePostgres starts a cluster on a free port and waits until it answers.
func servePostgres(initdb, data string, cred *syscall.SysProcAttr) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	cluster.port = ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	cmd := exec.Command(filepath.Join(filepath.Dir(resolved(initdb)), "postgres"), "-D", data, "-p", fmt.Sprint(cluster.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
	cmd.SysProcAttr, cmd.Dir = cred, cluster.dir
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	db, err := sql.Open("pgx", address("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			return fmt.Errorf("postgres ended by itself: %s", &log)
		default:
		}
		if err = db.Ping(); err == nil {
			cluster.cmd, cluster.ended = cmd, ended
			return nil
		}
	}
	cmd.Process.Kill()
	<-ended
	return fmt.Errorf("postgres does not answer: %w", err)
}

func resolved(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path
}

// TestPostgresErrors: an address without a server, and a name that is none, are errors without
// the password in them.
func TestPostgresErrors(t *testing.T) {
	for _, name := range []string{"postgres://u:topsecret@127.0.0.1:1/x?connect_timeout=2", "postgres://u:topsecret@[::1/x"} {
		_, err := Open(name)
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%v", err)
		}
	}
	if p := open(t, postgres(t)).Path(); strings.Contains(p, "secret") {
		t.Errorf("the path shows the password: %s", p)
	}
}
