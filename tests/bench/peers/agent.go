// The agent one would write in an afternoon in Go with gorilla/websocket: agent PORT CAFILE
// Runs {"op": "run", "id": N, "argv": [...]} and streams its output as binary messages, u32 id and bytes.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"sync"

	"github.com/gorilla/websocket"
)

type order struct {
	Op   string   `json:"op"`
	ID   uint32   `json:"id"`
	Argv []string `json:"argv"`
}

type exit struct {
	Op   string `json:"op"`
	ID   uint32 `json:"id"`
	Code int    `json:"code"`
}

type link struct {
	sync.Mutex
	ws *websocket.Conn
}

func (l *link) send(kind int, data []byte) {
	l.Lock()
	defer l.Unlock()
	if err := l.ws.WriteMessage(kind, data); err != nil {
		log.Fatal(err)
	}
}

func (l *link) run(o order) {
	cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
	code := 127
	out, w, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err == nil {
		buf := make([]byte, 4+65536)
		binary.BigEndian.PutUint32(buf, o.ID)
		for {
			n, err := out.Read(buf[4:])
			if n > 0 {
				l.send(websocket.BinaryMessage, buf[:4+n])
			}
			if err != nil {
				break
			}
		}
		cmd.Wait()
		code = cmd.ProcessState.ExitCode()
	}
	out.Close()
	text, _ := json.Marshal(exit{"exit", o.ID, code})
	l.send(websocket.TextMessage, text)
}

func main() {
	pem, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	dialer := websocket.Dialer{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		WriteBufferSize: 131072,
		ReadBufferSize:  65536,
	}
	ws, _, err := dialer.Dial("wss://localhost:"+os.Args[1]+"/peer", nil)
	if err != nil {
		log.Fatal(err)
	}
	l := &link{ws: ws}
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			return
		}
		var o order
		if json.Unmarshal(text, &o) == nil && o.Op == "run" {
			go l.run(o)
		}
	}
}
